"""Checks that a loop IR graph is well formed. Runs after every stage that makes or changes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from tcdebug.compiler.ir.arithmetic.index import Index, Symbol
from tcdebug.compiler.ir.expr import (
    Call,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Parameter,
    indices,
    loads,
    walk,
)
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Node,
    Pointwise,
    Ref,
    Scan,
    Scatter,
    extern_refs,
    written,
)
from tcdebug.compiler.ir.operations import (
    REDUCTIONS,
    SCANS,
    SORTS,
    STORABLE,
    UnsupportedOperands,
    gives_place,
    result_dtype,
)


class InvalidGraph(Exception):
    """A stage produced IR that breaks a rule, which is a bug in that stage."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("invalid loop IR:\n  " + "\n  ".join(problems))
        self.problems = problems


def verify(graph: Graph) -> None:
    """Raise InvalidGraph if a graph breaks a rule of the IR."""
    problems = list(_problems(graph))
    if problems:
        raise InvalidGraph(problems)


def _problems(graph: Graph) -> Iterator[str]:
    buffers = graph.buffers()
    defined: set[str] = set(graph.constants)
    known: set[Symbol] = set()
    for spec in graph.inputs:
        if spec.name in defined:
            yield f"{spec.name} is defined twice"
        defined.add(spec.name)
        known |= _symbols_of_input(spec.symbol, spec.buffer)
    for node in graph.nodes:
        if node.name in defined:
            yield f"{node.name} is defined twice"
        yield from verify_node(node, buffers, defined, known)
        defined.add(node.name)
        if isinstance(node, Extern):
            known |= set(node.binds)
            if node.out is not None:  # symbols may appear first in a result
                for index in node.out.size:
                    known |= index.symbols
    for output in graph.outputs:
        if isinstance(output, Ref) and output.name not in defined:
            yield f"output {output.name} is not defined"
        if isinstance(output, Index) and not output.symbols <= known:
            yield f"output {output} mentions unknown sizes"


def _symbols_of_input(symbol: Symbol | None, buffer: Buffer | None) -> set[Symbol]:
    found = {symbol} if symbol is not None else set()
    if buffer is not None:
        for index in (*buffer.size, *buffer.stride):
            found |= index.symbols
    return found


def verify_node(
    node: Node, buffers: Mapping[str, Buffer], defined: set[str], known: set[Symbol]
) -> Iterator[str]:
    """Yield the problems of one node, given the values and sizes defined before it."""
    if isinstance(node, Extern):
        for name in (*extern_refs(node), *node.mutates):
            if name not in defined:
                yield f"{node.name} uses {name} before it is defined"
        return
    yield from _verify_loop(node, buffers)
    axes = {axis.name: axis for axis in (*node.axes, *node.over)}
    if len(axes) != len(node.axes) + len(node.over):
        yield f"{node.name} names an axis twice"
    used = node.body.axes - set(axes.values())
    if unknown := {axis for axis in used if axis.name not in axes}:
        yield f"{node.name} uses axes that it does not loop over: {unknown}"
    for axis in used - unknown:
        yield f"{node.name} uses {axis} of size {axis.size}, not {axes[axis.name].size}"
    if not node.body.symbols <= known:
        yield f"{node.name} mentions unknown sizes: {node.body.symbols - known}"
    for expr in walk(node.body):
        yield from _verify_expr(node, expr, buffers, defined)
    if isinstance(node, Scatter):
        if node.into not in defined:
            yield f"{node.name} stores into {node.into} before it is defined"
        for index in node.index:
            for expr in walk(IndexValue(torch.int64, index)):
                yield from _verify_expr(node, expr, buffers, defined)


def _verify_into(node: Pointwise, memory: Buffer | None) -> Iterator[str]:
    if not node.into:
        return
    if memory is None or not node.out.fills(memory):
        yield f"{node.name} stores into {node.into}, which has another dtype or layout"
        return
    written_at = node.out.address(node.index)
    for load in loads(node.body):
        if load.buffer == node.into and memory.address(load.index) != written_at:
            yield f"{node.name} reads {node.into}{list(load.index)}, which it may have overwritten"


def _verify_loop(node: LoopNode, buffers: Mapping[str, Buffer]) -> Iterator[str]:
    out = node.out
    if out.dtype not in STORABLE:
        yield f"{node.name} has dtype {out.dtype}, which kernels do not write"
    if len(node.index) != len(out.size) or len(out.size) != len(out.stride):
        yield f"{node.name}: index, size and stride differ in length"
    if not (node.fills_exactly or isinstance(node, Scan) or written(node)):
        yield f"{node.name} loops over {node.axes} but fills {out.size}"
    if isinstance(node, Pointwise):
        if node.body.dtype != out.dtype:
            yield f"{node.name} stores {node.body.dtype} as {out.dtype}"
        yield from _verify_into(node, buffers.get(node.into))
        return
    if not node.reduced:
        yield f"{node.name} reduces over nothing"
    if node.kind not in (SCANS if isinstance(node, Scan) else REDUCTIONS):
        yield f"{node.name}: no reduction is called {node.kind}"
    expected = torch.int64 if gives_place(node.kind) else node.body.dtype
    floats = expected.is_floating_point and out.dtype.is_floating_point
    rounds = isinstance(node, Scan) and floats
    rounds |= node.kind in SORTS and out.dtype == torch.int16
    if out.dtype != expected and not rounds:
        yield f"{node.name} reduces {node.body.dtype} to {out.dtype}"


def _verify_expr(
    node: LoopNode, expr: Expr, buffers: Mapping[str, Buffer], defined: set[str]
) -> Iterator[str]:
    for index in indices(expr):
        for atom in index.atoms:
            if isinstance(atom, Indirect) and atom.expr.dtype not in (torch.int64, torch.int32):
                yield f"{node.name} indexes with {atom.expr.dtype}"
    match expr:
        case Load():
            buffer = buffers.get(expr.buffer)
            if buffer is None or expr.buffer not in defined:
                yield f"{node.name} loads {expr.buffer}, which is not defined"
            elif len(expr.index) != len(buffer.size) or expr.dtype != buffer.dtype:
                yield f"{node.name} loads {expr.buffer} as {expr.dtype}{list(expr.index)}"
        case Parameter():
            if expr.name not in defined:
                yield f"{node.name} uses {expr.name}, which is not defined"
        case IndexValue():
            if expr.dtype != torch.int64:
                yield f"{node.name}: an index is int64, not {expr.dtype}"
        case Guarded():
            if expr.condition.dtype != torch.bool or expr.body.dtype != expr.other.dtype:
                yield f"{node.name}: a guard of {[o.dtype for o in expr.operands]}"
        case Call() if expr.name != "cast":
            try:
                expected = result_dtype(expr.name, [a.dtype for a in expr.args])
            except UnsupportedOperands as error:
                yield f"{node.name}: {error}"
            else:
                if expected != expr.dtype:
                    yield f"{node.name}: {expr.name} makes {expected}, not {expr.dtype}"
