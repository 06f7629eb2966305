"""Runs a graph in eager with other roundings, to learn what error rounding explains.

How far eager is from float64 bounds the error of a program that rounds elsewhere. For many values
this bound is reliable. A loss is one number, whose error may happen to be close to zero in eager,
although its model computes in bfloat16, or adds a million numbers that cancel. A large tensor may
have few values too: the sine of large powers of integers below ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.judging.reference.widened_dtypes import WIDER

NARROW = (torch.bfloat16, torch.float16, torch.float32)
FEW = 64
"""Eager's error in fewer values than this does not bound that of another program."""
SAMPLE = 4096
"""The elements that are looked at before all of them are."""
DRAWS = 8
"""How often other roundings are drawn."""
LANES = 16.0
"""The number of partial sums that vectorized code keeps."""
ENOUGH_DRAWS, FAR = 3, 16.0
"""After so many draws, none of which is within this factor of the compiled result, drawing ends."""


def furthest_of_roundings(
    eager: Sequence[Any],
    exact: Sequence[Any],
    actual: Sequence[Any],
    again: Callable[[], Sequence[Any]],
) -> list[Any]:
    """Return the results of eager, with few-valued float tensors replaced by other roundings.

    `again` runs the graph in eager once more. Of several draws, that which is furthest from float64
    counts. Drawing ends early if none comes near the distance of the `actual` results. The results
    are equal to eager's if nothing is rounded.
    """
    furthest = list(eager)
    triples = zip(eager, exact, actual, strict=False)
    wanted = {k: _distance(a, x) for k, (e, x, a) in enumerate(triples) if _has_few(e, x, a)}
    for seed, drawn in enumerate(other_runs(again) if wanted else ()):
        if len(drawn) != len(eager):
            break
        for k in wanted:
            if _distance(drawn[k], exact[k]) > _distance(furthest[k], exact[k]):
                furthest[k] = drawn[k]
        near = any(FAR * _distance(furthest[k], exact[k]) >= far for k, far in wanted.items())
        if not near and seed + 1 >= ENOUGH_DRAWS:
            break
    return furthest


def other_runs(again: Callable[[], Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield the results of runs with other roundings. There are none if nothing is rounded."""
    for seed in range(DRAWS):
        try:
            with _OtherRoundings(seed) as mode:
                drawn = again()
        except Exception:  # a dispatch mode breaks some higher-order operators
            return
        if not mode.changed:
            return
        yield drawn


def _has_few(eager: Any, exact: Any, actual: Any) -> bool:
    """Whether these are floats of equal shape, not of a half type, with few values in eager."""
    if not all(isinstance(value, torch.Tensor) for value in (eager, exact, actual)):
        return False
    wide = eager.dtype in (torch.float32, torch.float64) and eager.layout == torch.strided
    if not wide or not eager.shape == exact.shape == actual.shape:
        return False
    count: int = eager.numel()
    if count < FEW or is_wrapper(eager):
        return 0 < count < FEW
    values = eager.detach().flatten()
    return len(values[:SAMPLE].unique()) < FEW and len(values.unique()) < FEW


def _distance(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float((value.double() - exact.double()).abs().nan_to_num(0.0, 0.0, 0.0).max())


class _OtherRoundings(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no annotation
    """Rounds results up or down by a unit where an operator rounds.

    An operator that combines elements of float32, such as a sum, also rounds inside, so its
    operands move too. A sum of n elements in LANES accumulators is usually off by up to
    sqrt(n / LANES) units (the rule of thumb in Higham, Accuracy and Stability of Numerical
    Algorithms, chapter 2), so operands and results move by that many. Half types are added in
    float32, where this error is below a unit of theirs.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no annotation
        self.changed = False
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and change what it rounds."""
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if not isinstance(func, OpOverload) or func._schema.is_mutable:
            return made
        results = _several(made)
        narrow = any(isinstance(r, torch.Tensor) and r.dtype in NARROW for r in results)
        if not narrow or torch.Tag.nondeterministic_seeded in func.tags:
            return made
        try:
            exact = func(*map_aggregate(tuple(args), _wider), **map_aggregate(kwargs, _wider))
        except Exception:  # an operator without a float64 kernel
            return made
        units = 1.0
        if torch.Tag.pointwise not in func.tags and _rounds_float32(results, _several(exact)):
            units = max(1.0, math.sqrt(_terms(args, results) / LANES))
            operands = map_aggregate(tuple(args), lambda value: self._moved(value, units))
            results = _several(func(*operands, **kwargs))
            made = results if isinstance(made, tuple | list) else results[0]
        for one, other in zip(results, _several(exact), strict=True):
            if isinstance(one, torch.Tensor) and one.dtype in NARROW:
                self._change(one, other, units)
        return made

    def _change(self, made: torch.Tensor, exact: torch.Tensor, units: float) -> None:
        """Move the elements that are rounded, as `_moved` does."""
        rounded = (made.double() != exact) & made.isfinite()
        if not bool(rounded.any()):
            return  # moved data, which may share memory with an operand
        self.changed = True
        made.copy_(torch.where(rounded, self._moved(made, units), made))

    def _moved(self, value: Any, units: float) -> Any:
        """Return a copy with each element moved up or down by these units, or left as it is."""
        if not isinstance(value, torch.Tensor) or value.dtype not in NARROW:
            return value
        signs = torch.randint(-1, 2, value.shape, generator=self._generator).to(value.device)
        moved = value.double() * (1 + units * signs * torch.finfo(value.dtype).eps)
        return moved.to(value.dtype)


def _several(made: Any) -> tuple[Any, ...]:
    return tuple(made) if isinstance(made, tuple | list) else (made,)


def _terms(args: Sequence[Any], results: Sequence[Any]) -> float:
    """Return about how many elements, or products of two, are added for one result."""
    sizes: list[int] = []

    def count(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            sizes.append(value.numel())
        return value

    map_aggregate(tuple(args), count)
    made = max(r.numel() for r in results if isinstance(r, torch.Tensor))
    largest = sorted(sizes)[-2:]
    return float((math.prod(largest) / max(made, 1)) ** (1.0 / max(len(largest), 1)))


def _rounds_float32(results: Sequence[Any], exact: Sequence[Any]) -> bool:
    """Whether any result in float32 differs from that in float64."""
    return any(
        isinstance(one, torch.Tensor)
        and one.dtype == torch.float32
        and bool(((one.double() != other) & one.isfinite()).any())
        for one, other in zip(results, exact, strict=True)
    )


def _wider(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value
