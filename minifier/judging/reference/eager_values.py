"""What a captured graph computes in eager and in float64: by node, results, gradients, updates."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import clone_values, flatten
from tcdebug.minifier.cases.lineage import Change, leaves
from tcdebug.minifier.cases.subclasses.parts import cotangents, is_wrapper
from tcdebug.minifier.judging.compare import Difference, difference
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64

Values = Mapping[str, Any]
"""Node name -> the value that it computed."""
Sources = Sequence[tuple[int, torch.Tensor]]
"""The positions of arguments, and the leaves with which their gradients are computed."""


@dataclass(frozen=True)
class _GraphRun:
    """One run of the captured graph."""

    values: Values = field(default_factory=dict)
    outputs: Sequence[Any] = ()
    gradients: Sequence[tuple[int, Any]] = ()
    """The gradients of arguments that require one, with the argument's position."""
    arguments: Sequence[Any] = ()
    """The arguments after the run, which may have updated them."""


@dataclass(frozen=True)
class EagerValues:
    """What the captured graph computes in eager, and in float64 if it can."""

    eager: _GraphRun
    exact: _GraphRun

    @property
    def values(self) -> Values:
        """The value of each node in eager."""
        return self.eager.values

    @property
    def exact_values(self) -> Values:
        """The value of each node in float64."""
        return self.exact.values

    def first_wrong(self, outputs: Sequence[Any]) -> Difference | None:
        """Return the first wrong result."""
        return _first(self.eager.outputs, outputs, self.exact.outputs, "output")

    def first_wrong_update(self, arguments: Sequence[Any]) -> Difference | None:
        """Return the first argument that has a wrong value after the call.

        Nothing is compared if AOTAutograd's graphs have other arguments than the captured graph.
        """
        if len(arguments) != len(self.eager.arguments):
            return None
        return _first(self.eager.arguments, arguments, self.exact.arguments, "input")

    def first_wrong_gradient(self, gradients: Sequence[Any]) -> Difference | None:
        """Return the first wrong gradient, if the traced graph has the same arguments."""
        if len(gradients) != len(self.eager.arguments):
            return None
        exact = dict(self.exact.gradients)
        for place, right in self.eager.gradients:
            where = f"gradient {place}"
            if found := differs(right, gradients[place], where, exact.get(place)):
                return found
        return None


def _first(
    right: Sequence[Any], values: Sequence[Any], exact: Sequence[Any], name: str
) -> Difference | None:
    references = exact or [None] * len(right)
    for place, (e, a, x) in enumerate(zip(right, values, references, strict=False)):
        if found := differs(e, a, f"{name} {place}", x):
            return found
    return None


def eager_values(captured: fx.GraphModule, args: Sequence[Any]) -> EagerValues:
    """Run the captured graph on copies of its arguments, with the same random numbers."""
    with torch.random.fork_rng():
        eager = _on_copies(partial(computed, captured, detach=False), args)
    exact = _GraphRun()
    with contextlib.suppress(Exception), torch.random.fork_rng():  # it may need its own dtypes
        exact = in_float64(
            partial(computed, captured, detach=False), lambda graph: _on_copies(graph, args, _WIDER)
        )
    return EagerValues(eager, exact)


def _on_copies(
    graph: Callable[[Sequence[Any]], tuple[Values, list[Any]]],
    args: Sequence[Any],
    change: Change | None = None,
) -> _GraphRun:
    """Return what a graph computes from copies of arguments, which may be changed."""
    copies = clone_values(args, change)
    sources = _sources(copies)
    values, outputs = graph(copies)
    gradients = _gradients(sources, outputs) if torch.is_grad_enabled() else []
    return _GraphRun(values, [*map(_plain, outputs)], gradients, [*map(_plain, copies)])


def _wider(memory: torch.Tensor) -> torch.Tensor:
    return memory.to(torch.float64 if memory.is_floating_point() else memory.dtype, copy=True)


_WIDER: Change = _wider


def _sources(copies: Sequence[Any]) -> Sources:
    """Return the leaf that each argument is, or is a clone of, before a graph updates arguments.

    A leaf of several arguments is left out, because it has the sum of their gradients.
    """
    of_each = [leaves([copy]) for copy in copies]
    count = Counter(id(leaf) for found in of_each for leaf in found)
    return [
        (k, leaf)
        for k, (copy, found) in enumerate(zip(copies, of_each, strict=True))
        for leaf in found
        if count[id(leaf)] == 1 and (copy is leaf or _is_clone(copy, leaf))
    ]


def _is_clone(copy: torch.Tensor, leaf: torch.Tensor) -> bool:
    made = copy.grad_fn
    if made is None or made.name() != "CloneBackward0":
        return False
    return getattr(made.next_functions[0][0], "variable", None) is leaf


def _gradients(sources: Sources, outputs: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the gradients of arguments, for the cotangents of `replay.run`."""
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not roots or not sources:
        return []
    wanted = [leaf for _, leaf in sources]
    found = torch.autograd.grad(roots, wanted, cotangents(roots), allow_unused=True)
    return [(k, gradient) for (k, _), gradient in zip(sources, found, strict=True)]


class _NodeValues(fx.Interpreter):
    """Runs a graph and keeps a copy of what each node computes."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and record its value."""
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.values[n.name] = result.detach().clone()
        return result


def computed(
    module: fx.GraphModule, args: Sequence[Any], *, detach: bool = True
) -> tuple[Values, list[Any]]:
    """Return the value of each node of a graph, and the graph's outputs."""
    recording = _NodeValues(module)
    with torch.no_grad() if detach else contextlib.nullcontext():
        outputs = recording.run(*args)
    return recording.values, flatten(outputs)


def differs(right: Any, value: Any, where: str, exact: Any = None) -> Difference | None:
    """Return how two tensors differ; None for values that are not tensors, or of other classes."""
    if not isinstance(right, torch.Tensor) or not isinstance(value, torch.Tensor):
        return None
    if is_wrapper(right) != is_wrapper(value):
        return None
    return difference(right.detach(), value.detach(), exact, where)


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
