"""memory.view: make a view from the memory that it shares, not by calling ATen's operators.

A call of an operator takes one to three microseconds, `unbind` more for each result, and a view of
a view takes two calls. A tensor that is made from the memory takes half a microsecond.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Index, to_index
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Node,
    Ref,
    extern_refs,
    map_arguments,
    output_refs,
    without_dead_nodes,
    written,
)
from tcdebug.compiler.schedule.kernel import Kernel, Schedule

UNIT = "memory.view"
aten = torch.ops.aten
ROW_MAJOR = frozenset((aten.addmm.default, aten.baddbmm.default, aten.bmm.default, aten.mm.default))
"""Operators whose results are new and row-major, whatever the strides of their operands."""


def direct_views(
    schedule: Schedule, operators: Container[Any], direction: str, gate: Gate
) -> Schedule:
    """Return a schedule whose views are made in one step from the memory that they share.

    Views are the results of calls of these `operators`, or items of them. The memory is an input,
    or the result of a kernel or a product, whose strides are known; hooks on saved tensors may
    change those of the inputs of a `backward`. Sizes are known numbers. A view that a `forward`
    returns is still made by ATen: it shares the version of its memory, by which autograd notices
    that a saved tensor was updated.
    """
    graph, buffers = schedule.graph, schedule.graph.buffers()
    known = {n.name: n.out for n in graph.nodes if n.out is not None and _is_laid_out(n, buffers)}
    if direction != "backward":
        known |= {spec.name: spec.buffer for spec in graph.inputs if spec.buffer is not None}
    by_aten = {name for node in graph.nodes for name in written(node)}
    by_aten |= _and_their_views(output_refs(graph), graph) if direction == "forward" else set()
    replay = ViewReplay(known)
    made: dict[str, Extern] = {}
    for node in graph.nodes:
        if not isinstance(node, Extern) or not node.only_views:
            continue
        if node.target not in operators and node.target is not operator.getitem:
            continue
        start = replay.start(node)
        if start is None or node.out is None or node.name in by_aten:
            continue
        if gate.allows(UNIT, node.name):
            made[node.name] = _made(node, node.out, replay.owner[node.name], start)
    return _with_views(schedule, made)


def _is_laid_out(node: Node, buffers: Container[str]) -> bool:
    """Return whether the result of a node has the strides of its buffer in every call.

    Products of sparse tensors, which have no buffers, may have others.
    """
    if not isinstance(node, Extern):
        return True
    if node.target not in ROW_MAJOR or node.out is None or not node.out.is_row_major:
        return False
    return all(name in buffers for name in extern_refs(node))


def _and_their_views(names: set[str], graph: Graph) -> set[str]:
    """Return values with the views of which they are views."""
    found = set(names)
    for node in reversed(graph.nodes):
        if isinstance(node, Extern) and node.name in found and node.alias_of is not None:
            found.add(node.alias_of)
    return found


class ViewReplay:
    """Makes views of tensors without memory, which tells where in the memory they begin."""

    def __init__(self, known: Mapping[str, Buffer]) -> None:
        self._known = known
        self._values: dict[str, Any] = {}
        self.owner: dict[str, str] = {}
        """View -> the value of whose memory it is made."""

    def start(self, view: Extern) -> int | None:
        """Return the offset of a view in the memory of its owner; None if that is not known.

        Views come in order.
        """
        base = view.alias_of or ""
        if base not in self._values and base in self._known:
            self.owner[base] = base
            self._values[base] = _without_memory(self._known[base])
        if self._values.get(base) is None:
            return None
        try:
            args, kwargs = map_arguments((view.args, dict(view.kwargs)), self._argument)
        except LookupError:
            return None
        value = self._values[view.name] = view.target(*args, **kwargs)
        owner = self.owner[view.name] = self.owner[base]
        if not isinstance(value, torch.Tensor) or view.out is None:
            return None
        same = value.dtype == self._known[owner].dtype and _layout(view.out) == (
            tuple(value.shape),
            value.stride(),
        )
        return int(value.storage_offset()) if same else None

    def _argument(self, leaf: Any) -> Any:
        """Return an argument of a call. Raises LookupError if it is not a known number."""
        if isinstance(leaf, Ref):
            return self._values[leaf.name]
        return _number(leaf) if isinstance(leaf, Index) else leaf


def _number(index: Index) -> int:
    if index.constant is None:
        raise LookupError(f"{index} is not a known number")
    return index.constant


def _layout(buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the size and stride of a buffer; None if one is not a known number."""
    try:
        return tuple(map(_number, buffer.size)), tuple(map(_number, buffer.stride))
    except LookupError:
        return None


def _without_memory(buffer: Buffer) -> torch.Tensor | None:
    layout = _layout(buffer)
    return layout and torch.empty_strided(*layout, dtype=buffer.dtype, device="meta")


def _made(node: Extern, out: Buffer, owner: str, start: int) -> Extern:
    arguments = (Ref(owner), out.size, out.stride, to_index(start))
    target = seams.reinterpret_tensor
    return replace(node, target=target, args=arguments, kwargs={}, alias_of=owner)


def _with_views(schedule: Schedule, made: Mapping[str, Extern]) -> Schedule:
    """Return the schedule with some calls replaced, without views that nothing needs then."""
    if not made:
        return schedule
    before = schedule.graph
    nodes = tuple(made.get(node.name, node) for node in before.nodes)
    graph = without_dead_nodes(Graph(before.inputs, nodes, before.outputs, before.constants))
    kept = {node.name for node in graph.nodes}
    steps = [s if isinstance(s, Kernel) else made.get(s.name, s) for s in schedule.steps]
    return Schedule(graph, tuple(s for s in steps if isinstance(s, Kernel) or s.name in kept))
