"""Keeps what the Triton kernels of a program rely on.

A kernel computes addresses from integers, which the program chose for the sizes of its tensors.
With a smaller tensor or another integer, it may read and write memory outside its tensors, also in
eager. What happens then says nothing about the compiler. So an edit may change the floating-point
numbers that reach a kernel, but neither their layout, nor which of them share memory, nor any
integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, attributes, value_key
from tcdebug.minifier.cases.operators.triton_launches import is_launch
from tcdebug.minifier.reduction.operators.surgery import writes
from tcdebug.minifier.reduction.trial import observed_without_memory

OF_LAYOUT = ("size", "numel", "dim", "stride")
"""Methods whose result depends on the layout of a tensor only."""
Layouts = Mapping[str, tuple[str, ...]]
"""The layouts of the arguments of each launch, by the name of its node; empty for other values."""


@dataclass(frozen=True)
class LaunchArguments:
    """What the launches of a graph get, by the names of their nodes."""

    layouts: Layouts | None
    """None if a graph has calls that cannot run with tensors without memory."""
    origins: Mapping[str, tuple[str, ...]]
    """Keys over everything that the value of an argument depends on."""

    def hold_for(self, case: Case) -> bool:
        """Return whether the launches of an edited graph get what they got before."""
        given = launch_arguments(case)
        return given is None or all(self._holds(name, given) for name in given.origins)

    def _holds(self, name: str, given: LaunchArguments) -> bool:
        if name not in self.origins:
            return False
        count = len(self.origins[name])
        unknown = ("",) * count
        before = unknown if self.layouts is None else self.layouts[name]
        after = unknown if given.layouts is None else given.layouts[name]
        pairs = zip(before, after, self.origins[name], given.origins[name], strict=True)
        return all((b and a == b) or own == other for b, a, own, other in pairs)


def launch_arguments(case: Case) -> LaunchArguments | None:
    """Return what the launches of a case get; None if it has none."""
    launches = _launching(case.module, case.graph)
    if not launches:
        return None
    origins = _Origins(case, launches)
    return LaunchArguments(
        _layouts(case, launches), {n.name: origins.of_arguments(n) for n in launches}
    )


def _launching(module: fx.GraphModule, graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that launch a kernel, or that call a nested graph that does."""
    nested = {
        name
        for name, value in attributes(module, graph).items()
        if isinstance(value, fx.GraphModule) and _launching(value, value.graph)
    }

    def launches(node: fx.Node) -> bool:
        called = [n for n in (node, *node.all_input_nodes) if n.op in ("get_attr", "call_module")]
        return is_launch(node) or any(str(n.target) in nested for n in called)

    return [node for node in graph.nodes if node.op.startswith("call") and launches(node)]


def _arguments(node: fx.Node) -> list[Any]:
    """Return the arguments of a launch in their order, the grids among them."""
    found: list[Any] = []
    fx.node.map_aggregate((node.args, dict(node.kwargs)), found.append)
    return found


class _Origins:
    """Says what the values of nodes depend on."""

    def __init__(self, case: Case, launches: Sequence[fx.Node]) -> None:
        self._given = {i.name: i for i in case.inputs}
        self._read = attributes(case.module, case.graph)
        self._writing = [n for n in case.graph.nodes if writes(n) or n in launches]
        self._keys: dict[fx.Node, str] = {}
        self._needed: dict[fx.Node, frozenset[fx.Node]] = {}
        for node in case.graph.nodes:
            self._keys[node] = self._key(node)
            inputs = (self._needed[i] for i in node.all_input_nodes)
            self._needed[node] = frozenset({node}).union(*inputs)

    def of_arguments(self, launch: fx.Node) -> tuple[str, ...]:
        """Return a key for each argument, which covers what may have been written to it before."""
        return tuple(
            self._before(launch, value) if isinstance(value, fx.Node) else repr(value)
            for value in _arguments(launch)
        )

    def _before(self, launch: fx.Node, value: fx.Node) -> str:
        shared = [
            self._keys[node]
            for node in self._writing
            if node < launch and self._needed[node] & self._needed[value]
        ]
        return " ".join([self._keys[value], *shared])

    def _key(self, node: fx.Node) -> str:
        if node.op == "placeholder":
            value = self._given[str(node.target)].value
            return value_key(value) if isinstance(value, torch.Tensor) else repr(value)
        if node.op == "get_attr":
            return value_key(self._read[str(node.target)])
        if node.target in OF_LAYOUT and (of := self._input(node)) is not None:
            return f"{node.target} {node.args[1:]!r} {_layout_of(of)}"
        target = getattr(node.target, "__name__", str(node.target))
        if node.op == "call_module":
            target = value_key(self._read[str(node.target)])
        given = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: self._keys[n])
        return blake2b(f"{target} {given!r}".encode(), digest_size=8).hexdigest()

    def _input(self, node: fx.Node) -> torch.Tensor | None:
        """Return the tensor that a method is called on if it is an input of the graph."""
        owner = node.args[0]
        if not isinstance(owner, fx.Node) or owner.op != "placeholder":
            return None
        value = self._given[str(owner.target)].value
        return value if isinstance(value, torch.Tensor) else None


def _layouts(case: Case, launches: Sequence[fx.Node]) -> Layouts | None:
    """Return the layouts of arguments with floating-point numbers, of a run without memory."""
    try:
        values = observed_without_memory(case).values
    except Exception:  # whatever an operator raises for tensors without memory
        return None
    return {n.name: _layouts_of([_known(a, values) for a in _arguments(n)]) for n in launches}


def _known(argument: Any, values: Mapping[str, Any]) -> Any:
    return values.get(argument.name) if isinstance(argument, fx.Node) else argument


def _layouts_of(values: Sequence[Any]) -> tuple[str, ...]:
    """Describe tensors with floating-point numbers, and which of them share memory."""
    memories: list[torch.UntypedStorage] = []
    found: list[str] = []
    for value in values:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            found.append("")
            continue
        memories.append(value.untyped_storage())
        first = next(k for k, m in enumerate(memories) if m._cdata == memories[-1]._cdata)
        found.append(f"{_layout_of(value)} in memory {first}")
    return tuple(found)


def _layout_of(value: torch.Tensor) -> str:
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"
