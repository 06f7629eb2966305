"""Writes an update of part of an input into the input.

Functionalization turns `x[i] = y` into a scatter into a new tensor, which is finally copied to x.
Matches such a chain of scatters (`VIEW_OF`, `IN_PLACE`) from an input to the copy back into it. The
part is written to x, and readers of the new tensor read x. Applies only if nothing reads the old
values later. Must run last: after it, the graph is no longer functional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import fx

from tcdebug.compiler.effects import may_share_memory

aten = torch.ops.aten


def updates_in_place(graph: fx.Graph) -> bool:
    """Write an update of part of an input into the input, instead of copying the whole input."""
    changed = False
    for last in [n for n in graph.nodes if n.target is aten.copy_.default]:
        memory = last.args[0]
        if not isinstance(memory, fx.Node) or memory.op != "placeholder":
            continue
        updates = _updates(last.args[1], memory)
        for update in updates:
            if not _is_last_read(memory, update, last):
                break
            if update is not updates[-1] and not _is_read_before(update, last):
                break
            _write(graph, memory, update)
            changed = True
        if updates and last.args[1] is memory:
            last.replace_all_uses_with(memory)
            graph.erase_node(last)
    return changed


def _updates(value: object, memory: fx.Node) -> list[fx.Node]:
    """The updates that lead from the memory to a value, in order; empty if others are needed."""
    found: list[fx.Node] = []
    while isinstance(value, fx.Node) and value is not memory:
        if value.target not in VIEW_OF and value.target not in IN_PLACE:
            return []
        found.append(value)
        value = value.args[0]
    return found[::-1]


def _is_last_read(memory: fx.Node, update: fx.Node, last: fx.Node) -> bool:
    """Whether all other reads of the memory come before the update, which is not an output."""
    before = set(_preceding(update))
    if any(user.op == "output" for user in update.users):
        return False
    return all(user in before or user in (update, last) for user in _readers(memory))


def _is_read_before(update: fx.Node, last: fx.Node) -> bool:
    """Whether nothing reads the result of an update, or a view of it, after the last write.

    A returned view does. Functionalization copies what a program returns of an earlier value, but
    the copy of a result that nothing else changes is not needed, and removed.
    """
    before = set(_preceding(last))
    return all(user in before for user in _readers(update))


def _preceding(node: fx.Node) -> Iterator[fx.Node]:
    for other in node.graph.nodes:
        if other is node:
            return
        yield other


def _readers(value: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes that read the memory of a value, directly or through views."""
    stack, seen = [value], {value}
    while stack:
        for user in stack.pop().users:
            if user not in seen:
                seen.add(user)
                yield user
                if user.op != "output" and may_share_memory(user):
                    stack.append(user)


def _write(graph: fx.Graph, memory: fx.Node, update: fx.Node) -> None:
    """Replace an update by a write to the memory. Its readers then read the memory."""
    view = VIEW_OF.get(update.target)
    with graph.inserting_before(update):
        if view is None:
            args = (memory, *update.args[1:])
            written = graph.call_function(IN_PLACE[update.target], args, dict(update.kwargs))
            written.meta = dict(update.meta)
        else:
            _write_part(graph, memory, update, view)
    update.replace_all_uses_with(memory)
    while not update.users and update.target in VIEW_OF | IN_PLACE:
        source = update.args[1]
        graph.erase_node(update)
        if not isinstance(source, fx.Node):
            break
        update = source


def _write_part(
    graph: fx.Graph, whole: fx.Node, update: fx.Node, view: torch._ops.OpOverload
) -> None:
    """Copy into a view of the whole. If the source updates that view, copy only its part."""
    _, source, *where = update.args
    part = graph.call_function(view, (whole, *where), dict(update.kwargs))
    part.meta = dict(update.meta)
    part.meta["val"] = view(whole.meta["val"], *_values(where), **_values_of(update.kwargs))
    inner = isinstance(source, fx.Node) and len(source.users) == 1 and source
    if inner and inner.target in VIEW_OF and _same_view(inner.args[0], part):
        _write_part(graph, part, inner, VIEW_OF[inner.target])
        return
    if _same_view(_copied(source), part):
        return  # x[i] += y ends with x[i] = x[i]
    copied = graph.call_function(aten.copy_.default, (part, source))
    copied.meta = {**update.meta, "val": part.meta["val"]}


def _copied(source: object) -> object:
    """Return the source of a copy; any other value unchanged."""
    if isinstance(source, fx.Node) and source.target is aten.copy.default:
        return source.args[1] if _same_view(source.args[0], source.args[1]) else source
    return source


def _same_view(a: object, b: object) -> bool:
    """Return whether two values are the same, or the same view of the same memory."""
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or a is b:
        return a is b or (not isinstance(a, fx.Node) and a == b)
    if a.target is not b.target or a.target not in VIEW_OF.values():
        return False
    return (
        len(a.args) == len(b.args) and all(map(_same_view, a.args, b.args)) and a.kwargs == b.kwargs
    )


def _values(arguments: Sequence[object]) -> list[object]:
    return [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]


def _values_of(arguments: Mapping[str, object]) -> dict[str, object]:
    return dict(zip(arguments, _values(list(arguments.values())), strict=True))


VIEW_OF: dict[object, torch._ops.OpOverload] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
}
"""Operator that replaces a view -> the view."""

IN_PLACE: dict[object, torch._ops.OpOverload] = {
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.index_fill.int_Tensor: aten.index_fill_.int_Tensor,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter_reduce.two: aten.scatter_reduce_.two,
    aten.masked_scatter.default: aten.masked_scatter_.default,
}
"""Operator that writes at indices given by data -> its in-place form."""
