"""Products of matrices as loops, with the pointwise work around them in the same kernel.

Schedule in, schedule out. A call of ATen for a product and the kernel that reads its result become
one kernel that a template writes: a reduction over the common dimension, what follows at each
element of the result (the epilogue), and what makes an operand where that is cheap to repeat
for every tile (the prologue). Whether that is faster is for the caller to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr, Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    LoopNode,
    Node,
    Pointwise,
    Reduction,
    Ref,
    Scatter,
    memory_of,
    output_refs,
    reads,
    written,
)
from tcdebug.compiler.ir.index import ZERO, Axis, Index, to_index
from tcdebug.compiler.schedule.align import Loops, align
from tcdebug.compiler.schedule.cost import arithmetic, itemsize
from tcdebug.compiler.schedule.dependencies import Dependencies, between_steps
from tcdebug.compiler.schedule.fusion import LARGEST_KERNEL, legal
from tcdebug.compiler.schedule.inline import indirect, inlined, plain
from tcdebug.compiler.schedule.kernel import Kernel, Schedule
from tcdebug.compiler.schedule.stage import kernel_name, renamed

aten = torch.ops.aten
OPERANDS: Mapping[Callable[..., Any], int] = {
    aten.mm.default: 0,
    aten.bmm.default: 0,
    aten.addmm.default: 1,
    aten.baddbmm.default: 1,
}
"""Operators that are products -> where their operands begin; what stands before is added."""
TRANSPOSES = (aten.t.default, aten.transpose.int, aten.permute.default)
DEVICES = ("cuda",)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CHEAP = 4
"""Arithmetic (see schedule.cost) of an operand that every tile may compute again."""


class NotFused(Exception):
    """Why a product stays a call of ATen."""


@dataclass(frozen=True)
class FusedProduct:
    """A kernel for a product, and what it does the work of."""

    extern: Extern
    kernel: Kernel
    """Without a template: any will do."""
    nodes: tuple[LoopNode, ...]
    """The product in the loop IR."""
    replaces: tuple[Kernel | Extern, ...]

    @property
    def names(self) -> frozenset[str]:
        """The nodes that it takes the place of."""
        kernels = [s for s in self.replaces if isinstance(s, Kernel)]
        return frozenset({self.extern.name} | {n.name for k in kernels for n in k.nodes})


def products(schedule: Schedule) -> list[Extern]:
    """The calls for products on devices that have templates."""
    calls = [s for s in schedule.steps if isinstance(s, Extern) and s.target in OPERANDS]
    return [c for c in calls if c.out is not None and c.out.device.type in DEVICES]


def fused_products(schedule: Schedule, extern: Extern) -> list[FusedProduct]:
    """The product with its epilogue, then the same with its prologue where it has a cheap one.

    The last replaces all that the first does. Raises NotFused for what no template can write.
    """
    nodes = as_loops(extern, schedule)
    dependencies = between_steps(schedule)
    prologues = _prologues(schedule, extern, nodes[0], dependencies)
    body = nodes[0].body
    for _, producer in prologues:
        body = inlined(body, producer)
        dependencies.merge(*(dependencies.key_of(n) for n in (producer.name, extern.name)))
    inside = (replace(nodes[0], body=body), *nodes[1:])
    epilogue = _epilogue(schedule, extern, inside, dependencies)
    found = [_fused(schedule, extern, nodes, epilogue, ())]
    if prologues:
        found.append(_fused(schedule, extern, inside, epilogue, [k for k, _ in prologues]))
    return found


def replaced(schedule: Schedule, fused: FusedProduct) -> Schedule:
    """The schedule with a fused product in the place of what it does the work of."""
    graph = schedule.graph
    dependencies = between_steps(schedule)
    _merge(dependencies, fused.replaces)
    step_of: dict[str, Kernel | Extern] = {}
    gone = {step.name for step in fused.replaces}
    for step in schedule.steps:
        taken = fused.kernel if step.name in gone else step
        names = [n.name for n in step.nodes] if isinstance(step, Kernel) else [step.name]
        step_of.update(dict.fromkeys(names, taken))
    steps = list({id(s): s for s in map(step_of.__getitem__, dependencies.order())}.values())
    kept = {n.name for n in fused.kernel.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == fused.extern.name:
            nodes += fused.nodes
        elif node.name not in fused.names or node.name in kept:
            nodes.append(node)
    return _without_unread_views(Schedule(replace(graph, nodes=tuple(nodes)), tuple(steps)))


# -- the product as loops -------------------------------------------------------------------


def as_loops(extern: Extern, schedule: Schedule) -> tuple[LoopNode, ...]:
    """The sums over the common dimension, then what makes the result of them.

    Raises NotFused.
    """
    out, first = extern.out, OPERANDS[extern.target]
    assert out is not None
    buffers = schedule.graph.buffers()
    given = [buffers.get(a.name) if isinstance(a, Ref) else None for a in extern.args]
    left, right = given[first : first + 2]
    if left is None or right is None or any(b is None for b in given):
        raise NotFused("an operand is not a plain tensor")
    if out.dtype not in DTYPES or {b.dtype for b in given if b is not None} != {out.dtype}:
        raise NotFused(f"no template computes with {out.dtype}")
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(out.size) if size != 1)
    depth = Axis("r0", left.size[-1])
    along = {a.name: to_index(a) for a in axes}
    where = tuple(along.get(f"i{k}", ZERO) for k in range(len(out.size)))
    wide = compute_dtype(out.dtype)
    row = (*where[:-1], to_index(depth))
    column = (*where[:-2], to_index(depth), where[-1])
    operands = [_element(b, i, schedule) for b, i in ((left, row), (right, column))]
    body, origin = call("mul", *(cast(o, wide) for o in operands)), extern.origin
    if first == 0 and wide == out.dtype:
        return (Reduction(out, axes, (depth,), where, "sum", body, origin),)
    name = f"{extern.name}_sum"
    while name in buffers:
        name += "_"
    sums = replace(out, name=name, dtype=wide)
    reduction = Reduction(sums, axes, (depth,), where, "sum", body, origin)
    total: Expr = Load(wide, name, where)
    if first:
        total = _added(extern, given[0], where, total)
    return reduction, Pointwise(out, axes, where, cast(total, out.dtype), origin)


def _added(extern: Extern, bias: Buffer | None, where: Sequence[Index], total: Expr) -> Expr:
    """alpha times the sums and beta times what is added to them, which is broadcast."""
    alpha, beta = (extern.kwargs.get(name, 1) for name in ("alpha", "beta"))
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        raise NotFused("its scale is not a plain number")
    if alpha != 1:
        total = call("mul", total, constant(total.dtype, alpha))
    if beta == 0:  # what is added is not looked at, whatever it is
        return total
    assert bias is not None
    behind = where[len(where) - len(bias.size) :]
    place = tuple(ZERO if s == 1 else w for s, w in zip(bias.size, behind, strict=True))
    value = cast(Load(bias.dtype, bias.name, place), total.dtype)
    if beta != 1:
        value = call("mul", value, constant(total.dtype, beta))
    return call("add", total, value)


def _element(buffer: Buffer, index: Sequence[Index], schedule: Schedule) -> Load:
    """An element of an operand, read where it is in memory: through transpositions."""
    buffers, nodes = schedule.graph.buffers(), {n.name: n for n in schedule.graph.nodes}
    while isinstance(view := nodes.get(buffer.name), Extern) and view.target in TRANSPOSES:
        source = buffers.get(view.alias_of or "")
        if source is None or view.kwargs or view.args[0] != Ref(source.name):
            break
        count = len(source.size)
        order = list(range(count))
        if view.target is aten.permute.default:
            order = [dim % count for dim in view.args[1]]
        elif count > 1:
            first, second = view.args[1:] or (0, 1)
            order[first], order[second] = order[second], order[first]
        index = [index[order.index(dim)] for dim in range(count)]
        buffer = source
    return Load(buffer.dtype, buffer.name, tuple(index))


# -- what is fused in -----------------------------------------------------------------------


def _fused(
    schedule: Schedule,
    extern: Extern,
    nodes: tuple[LoopNode, ...],
    epilogue: Kernel | None,
    prologues: Sequence[Kernel],
) -> FusedProduct:
    loops, stored, number = _loops(nodes), {extern.name}, 0
    replaces: tuple[Kernel | Extern, ...] = (*prologues, extern)
    if epilogue is not None:
        loops = next(_together(loops, epilogue, memory_of(schedule.graph.nodes)))
        replaces = (*replaces, epilogue)
        kept = _read_elsewhere(schedule, extern, epilogue)
        stored = set(epilogue.stored) | (stored if kept else set())
        number = int(epilogue.name.rpartition("_")[2])
    outer, inner, moved = renamed(loops)
    taken = {k.name for k in schedule.kernels()}
    while (name := kernel_name(moved, number, template=True)) in taken:
        number += 1
    kernel = Kernel(name, outer, inner, moved, frozenset(stored))
    return FusedProduct(extern, kernel, nodes, replaces)


def _loops(nodes: tuple[LoopNode, ...]) -> Loops:
    product = nodes[0]
    assert isinstance(product, Reduction)
    return Loops(product.axes, product.reduced, nodes)


def _together(loops: Loops, epilogue: Kernel, memory: Mapping[str, str]) -> Iterator[Loops]:
    """The ways to write a kernel in the loops of a product, at each element of the result."""
    for merged in align(loops, Loops(epilogue.outer, (), epilogue.nodes)):
        one_sum = len(merged.inner) == 1 and len(merged.nodes[0].axes) == len(merged.outer)
        outside = all(len(n.filled) == len(merged.outer) for n in merged.nodes)
        if one_sum and outside and legal(merged, memory):
            yield merged


def _epilogue(
    schedule: Schedule, extern: Extern, nodes: tuple[LoopNode, ...], dependencies: Dependencies
) -> Kernel | None:
    """The first kernel that can go on with the elements of a product."""
    memory = memory_of(schedule.graph.nodes)
    for kernel in schedule.kernels():
        if extern.name not in kernel.loaded() or _why_alone(kernel, extern):
            continue
        keys = [dependencies.key_of(n) for n in (extern.name, kernel.subject)]
        if dependencies.blocked(*keys):
            continue
        if next(_together(_loops(nodes), kernel, memory), None) is not None:
            return kernel
    return None


def why_no_epilogue(schedule: Schedule, fused: FusedProduct) -> str:
    """Why the kernels that read a product are kernels of their own; empty where one is not."""
    name = fused.extern.name
    readers = [k for k in schedule.kernels() if name in k.loaded()]
    if not readers or any(isinstance(s, Kernel) and s in readers for s in fused.replaces):
        return ""
    reasons = [_why_alone(kernel, fused.extern) for kernel in readers]
    return next(filter(None, reasons), f"{readers[0].name} reads it elsewhere, or later")


def _why_alone(kernel: Kernel, extern: Extern) -> str:
    """What keeps a kernel from being the epilogue of any product; empty where nothing does."""
    if kernel.template is not None:
        return f"{kernel.name} is a product too"
    if kernel.inner or any(isinstance(n, Scatter) for n in kernel.nodes):
        return f"{kernel.name} does more than visit points"
    if any(extern.name in written(n) for n in kernel.nodes):
        return f"{kernel.name} stores over it"
    if len(kernel.nodes) + 2 > LARGEST_KERNEL:
        return f"{kernel.name} has {len(kernel.nodes)} nodes"
    return ""


def _prologues(
    schedule: Schedule, extern: Extern, product: LoopNode, dependencies: Dependencies
) -> list[tuple[Kernel, Pointwise]]:
    """The kernels that make an operand and nothing else, cheaply, and what they compute."""
    operands = {load.buffer for load in loads(product.body)}
    made = {node.name: node for node in schedule.graph.nodes}
    found: list[tuple[Kernel, Pointwise]] = []
    for kernel in schedule.kernels():
        producer = made.get(kernel.subject)
        if kernel.subject not in operands or len(kernel.nodes) > 1 or kernel.template is not None:
            continue
        if not isinstance(producer, Pointwise) or written(producer) or not plain(producer):
            continue
        if not _is_cheap(producer) or _read_elsewhere(schedule, producer, extern):
            continue
        if not dependencies.blocked(*map(dependencies.key_of, (producer.name, extern.name))):
            found.append((kernel, producer))
    return found


def _is_cheap(producer: Pointwise) -> bool:
    """Whether every tile may compute an operand again: hardly more is read, little is computed."""
    read = [load for load in loads(producer.body) if load.axes == producer.body.axes]
    bytes_read = sum(itemsize(load.dtype) for load in read)
    dear = arithmetic(producer.body) > CHEAP or indirect(producer.body)
    return not dear and bytes_read <= 2 * itemsize(producer.out.dtype)


def _read_elsewhere(schedule: Schedule, node: Node, reader: Kernel | Extern) -> bool:
    """Whether anything but one step reads a value."""
    if node.name in output_refs(schedule.graph):
        return True
    for step in schedule.steps:
        if step is reader or (isinstance(step, Extern) and step.name == node.name):
            continue
        if isinstance(step, Extern):
            if node.name in reads(step) or step.alias_of == node.name:
                return True
        elif node.name in step.loaded() or any(node.name in written(n) for n in step.nodes):
            return True
    return False


def _merge(dependencies: Dependencies, steps: Sequence[Kernel | Extern]) -> None:
    names = [s.subject if isinstance(s, Kernel) else s.name for s in steps]
    for name in names[1:]:
        dependencies.merge(dependencies.key_of(names[0]), dependencies.key_of(name))


def _without_unread_views(schedule: Schedule) -> Schedule:
    """The schedule without views that only the call read."""
    needed = set(output_refs(schedule.graph))
    steps: list[Kernel | Extern] = []
    for step in reversed(schedule.steps):
        if isinstance(step, Extern) and step.name not in needed and _is_view(step):
            continue
        steps.append(step)
        needed |= reads(step) if isinstance(step, Extern) else step.loaded()
        needed |= {n for k in [step] if isinstance(k, Kernel) for x in k.nodes for n in written(x)}
    kept = {n.name for s in steps for n in (s.nodes if isinstance(s, Kernel) else (s,))}
    nodes = tuple(n for n in schedule.graph.nodes if n.name in kept)
    return Schedule(replace(schedule.graph, nodes=nodes), tuple(reversed(steps)))


def _is_view(call: Extern) -> bool:
    return call.alias_of is not None and not call.effect and not call.binds
