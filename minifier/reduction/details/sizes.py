"""Changes the sizes of inputs, and the numbers in the graph that depend on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput, flatten
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details.related_inputs import groups, groups_by_first, resized_group
from tcdebug.minifier.reduction.details.simplify_inputs import make
from tcdebug.minifier.reduction.operators.surgery import editable, name_of
from tcdebug.minifier.reduction.trial import can_run

SIZED = {
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "arange", "broadcast_to",
    "empty", "expand", "eye", "full", "group_norm", "layer_norm", "linspace", "narrow", "new_empty",
    "new_full", "new_ones", "new_zeros", "ones", "rand", "randint", "randn", "randperm", "reshape",
    "resize", "rms_norm", "split", "split_with_sizes", "tile", "unflatten", "view", "zeros",
}  # fmt: skip
"""Functions and methods that take sizes as arguments."""
MOST_TIMES = 16
"""A size is treated as a multiple of another up to this factor."""


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that are strided tensors, and not made of others."""
    return {
        i.name: tuple(i.value.shape)
        for i in case.inputs
        if isinstance(i.value, torch.Tensor) and i.value.layout == torch.strided
        if not is_wrapper(i.value)
    }


def literal_sizes(case: Case) -> set[int]:
    """Return the numbers in a graph that may be sizes."""
    return {v for n in case.calls if name_of(n) in SIZED for v in flatten(n.args) if _is_size(v)}


def resized(
    case: Case, sizes: Mapping[str, tuple[int, ...]], new: Mapping[int, int]
) -> Case | None:
    """Return the case with smaller inputs; None if eager cannot run it.

    It first replaces the sizes in the graph too. If that does not run, the graph stays as it is.
    """
    smaller = {i.name for i in case.inputs if i.name in sizes and i.value.shape != sizes[i.name]}
    shared = groups(case)
    changed: dict[str, CaseInput] = {}
    for names in groups_by_first(case).values():
        if not smaller.isdisjoint(names):
            changed |= resized_group(case, names, sizes)
    inputs = [
        _narrowed(i, sizes[i.name]) if i.name in smaller and i.name not in shared
        else changed.get(i.name, i)
        for i in case.inputs
    ]  # fmt: skip
    for follow in (True, False):
        graph, _ = editable(case)
        for node in graph.nodes:
            if follow and name_of(node) in SIZED:
                node.args = fx.node.map_aggregate(node.args, lambda v: _changed(v, new))
        candidate = case.with_graph(graph, inputs)
        if can_run(candidate, case):
            return candidate
    return None


def _narrowed(spec: CaseInput, size: tuple[int, ...]) -> CaseInput:
    """Cut an input to its first elements, or recreate it from its recipe in the new size."""
    old = spec.value
    new = old.detach()
    for dim, length in enumerate(size):
        new = new.narrow(dim, 0, length)
    new = new.clone().requires_grad_(old.requires_grad)
    new = new if old.is_leaf else new.clone()
    if isinstance(old, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    return replace(spec, value=new if spec.recipe is None else make(spec.recipe, new))


def indices_below(spec: CaseInput, bound: int) -> CaseInput:
    """Return an input whose integers are valid indices into a dimension of size `bound`."""
    value = spec.value
    integers = isinstance(value, torch.Tensor) and not (
        value.is_floating_point() or value.dtype.is_complex or value.dtype == torch.bool
    )
    if (
        not integers
        or is_wrapper(value)
        or not value.numel()
        or value.min() < 0
        or value.max() < bound
    ):
        return spec
    if spec.recipe is None or spec.recipe.kind not in ("randint", "arange"):
        return replace(spec, value=value % bound, recipe=None)
    recipe = replace(
        spec.recipe, low=min(spec.recipe.low, bound - 1), high=min(spec.recipe.high, bound)
    )
    return replace(spec, value=make(recipe, value), recipe=recipe)


def small_indices(case: Case, bound: int) -> Case:
    """Return the case with indices below a bound. Inputs that share memory are left as they are."""
    shared = groups(case)
    alone = (i for i in case.inputs if i.name not in shared)
    return case.with_inputs({i.name: indices_below(i, bound) for i in alone})


def size_maps(case: Case, limit: int) -> Iterator[dict[int, int]]:
    """Yield maps from old to new sizes. No new size exceeds the limit unless it is derived.

    Derived sizes are computed from others. In the first map, only sums are derived. In the second,
    products such as `view` computes them are derived too; in the third, multiples instead.
    """
    known = {s for shape in shapes(case).values() for s in shape} | literal_sizes(case)
    ascending = sorted(s for s in known if s > 1)
    sums = {sum(parts): parts for parts in _parts(case)}
    for made_of in (_underived, _products, _multiples):
        new: dict[int, int] = {}
        for size in ascending:
            times, factors = made_of(size, [s for s in ascending if s < size])
            if size in sums:
                new[size] = sum(new.get(part, part) for part in sums[size])
            elif factors:
                new[size] = times * math.prod(new[s] for s in factors)
            else:
                new[size] = min(size, limit)
        yield new


def _underived(size: int, smaller: list[int]) -> tuple[int, tuple[int, ...]]:
    return 1, ()


def _products(size: int, smaller: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return two or three sizes whose product is this size."""
    for count in (2, 3):
        for factors in itertools.combinations_with_replacement(smaller, count):
            if math.prod(factors) == size:
                return 1, factors
    return 1, ()


def _multiples(size: int, smaller: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return the factor and the largest size of which this size is a multiple."""
    for factor in reversed(smaller):
        if size % factor == 0 and size // factor <= MOST_TIMES:
            return size // factor, (factor,)
    return 1, ()


def _parts(case: Case) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of the pieces of each split."""
    for node in case.calls:
        if name_of(node) in ("split", "split_with_sizes") and len(node.args) > 1:
            parts: Any = node.args[1]
            if isinstance(parts, tuple | list) and all(map(_is_size, parts)):
                yield tuple(parts)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


def _changed(value: Any, new: Mapping[int, int]) -> Any:
    return new.get(value, value) if isinstance(value, int) and _is_size(value) else value
