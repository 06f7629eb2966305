"""Derives from a run's texts which loop reads which result, before and after fusion.

The texts are Python. They are parsed, never executed, since a run folder may come from others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import msgspec

LOOPS = ("pointwise", "reduction", "scan")
OUTPUT = "output"
BITS = {"bool": 8, "float8": 8, "bfloat16": 16, "complex64": 64, "complex128": 128}
"""Dtypes whose names do not end in their number of bits, or not in all of it."""


class Box(msgspec.Struct):
    """A loop, a kernel, a call of ATen or an input, with its reads and the bytes written and moved.

    Bytes are 0 if sizes are symbolic.
    """

    name: str
    kind: str
    op: str
    where: str
    reads: list[str]
    written: int
    moved: int
    group: str = ""
    """The kernel that contains the loop."""


class Flow(msgspec.Struct):
    """A graph before and after its loops became kernels."""

    before: list[Box]
    after: list[Box]
    of: str = "loop"
    """What `before` consists of: loops, or operators of inductor's graph."""
    grouped: bool = True
    """Whether the run recorded which kernel computes what."""


@dataclass
class _Node:
    name: str
    kind: str
    op: str
    where: str
    reads: list[str]
    written: int
    alias_of: str = ""


def flow(lowered: str, inlined: str, kernels: Mapping[str, Sequence[str]]) -> Flow | None:
    """Return the data flow of a graph; None if a text is not loop IR.

    `kernels` lists, for each kernel, the nodes of `inlined` that it computes.
    """
    try:
        before, after = _nodes(lowered), _nodes(inlined)
    except (SyntaxError, ValueError, IndexError, AttributeError):
        return None
    kernel_of = {node: name for name, nodes in kernels.items() for node in nodes}
    fused = _fused(after, kernel_of)
    return Flow(_boxes(before, _owners(before, after, kernel_of)), fused)


def _owners(
    before: dict[str, _Node], after: Mapping[str, _Node], kernel_of: Mapping[str, str]
) -> dict[str, str]:
    """Return the kernel of each loop. An inlined loop belongs to its first reader's kernel."""
    owners = dict(kernel_of)
    for name in reversed(before):
        for read in before[name].reads:
            if name in owners and read not in after and before[read].kind in LOOPS:
                owners.setdefault(read, owners[name])
    return owners


def _boxes(nodes: Mapping[str, _Node], owners: Mapping[str, str]) -> list[Box]:
    """Return one box per node."""
    size = {name: node.written for name, node in nodes.items()}
    return [
        Box(
            n.name, n.kind, n.op, n.where, n.reads, n.written,
            n.written + sum(size[r] for r in n.reads) if n.kind in LOOPS else 0,
            owners.get(n.name, ""),
        )
        for n in nodes.values()
    ]  # fmt: skip


def _fused(nodes: Mapping[str, _Node], kernel_of: Mapping[str, str]) -> list[Box]:
    """Return one box per kernel. Results that only one kernel uses are not written."""
    members: dict[str, list[_Node]] = {}
    for node in nodes.values():
        members.setdefault(kernel_of.get(node.name, node.name), []).append(node)
    boxes: list[Box] = []
    outside: dict[str, int] = {}
    for name, group in members.items():
        inside = {n.name for n in group}
        reads = dict.fromkeys(r for n in group for r in n.reads if r not in inside)
        for read in reads:
            outside[read] = nodes[read].written
        kind = "kernel" if group[0].name in kernel_of else group[0].kind
        op = f"{len(group)} loops" if len(group) > 1 else group[0].op
        sources = dict.fromkeys(kernel_of.get(r, r) for r in reads)
        moved = sum(nodes[r].written for r in reads) if kind == "kernel" else 0
        owner = name if kind == "kernel" else ""
        boxes.append(Box(name, kind, op, group[-1].where, list(sources), 0, moved, owner))
    returned = nodes[OUTPUT].reads
    for box in boxes:
        for node in members[box.name]:
            if node.name in outside or node.name in returned:
                box.written += node.written
        box.moved += box.written if box.kind == "kernel" else 0
    return boxes


def _nodes(text: str) -> dict[str, _Node]:
    """Return inputs, loops, calls and the output of a text, without views. Raises ValueError."""
    found: dict[str, _Node] = {}
    root: dict[str, str] = {}
    for statement in ast.parse(text).body:
        node = _node(statement)
        if node is None:
            continue
        if node.alias_of:
            root[node.name] = root.get(node.alias_of, node.alias_of)
            continue
        node.reads = list(dict.fromkeys(root.get(r, r) for r in node.reads))
        found[node.name] = node
    for node in found.values():
        node.reads = [r for r in node.reads if r in found]
    if OUTPUT not in found:
        raise ValueError("no output")
    return found


def _node(statement: ast.stmt) -> _Node | None:
    """Return the node of a statement; None for other statements, such as a symbol."""
    if isinstance(statement, ast.FunctionDef):
        call = statement.decorator_list[0]
        reads = [_text(c.args[1]) for c in _calls(statement.body, "load")]
        return _made(call, reads)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return None
    return _made(statement.value, [_text(c.args[0]) for c in _calls([statement.value], "ref")])


def _made(call: ast.expr, reads: list[str]) -> _Node | None:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    kind = call.func.id
    words = {k.arg: k.value for k in call.keywords}
    if kind == OUTPUT:
        return _Node(OUTPUT, OUTPUT, "", "", reads, 0)
    if kind == "input_buffer":
        name = _text(call.args[0])
        return _Node(name, "input", "", "", [], _bytes(call.args[1], words.get("size")))
    if kind in LOOPS:
        written = _bytes(call.args[1], words.get("size"))
        return _Node(_text(call.args[0]), kind, *_origin(words), reads, written)
    if kind != "extern":
        return None
    written = 0
    if isinstance(out := words.get("out"), ast.Call):
        sizes = {k.arg: k.value for k in out.keywords}
        written = _bytes(out.args[1], sizes.get("size"))
    alias = words.get("alias_of")
    base = _text(alias) if alias is not None else ""
    return _Node(_text(call.args[0]), kind, *_origin(words), reads, written, base)


def _origin(words: Mapping[str | None, ast.expr]) -> tuple[str, str]:
    """Return (operator, FILE:N) of a node."""
    parts = words.get("origin")
    elements = parts.elts if isinstance(parts, ast.Tuple) else []
    values = [str(e.value) for e in elements if isinstance(e, ast.Constant)]
    place = f"{values[2]}:{values[3]}" if len(values) > 3 else ""
    return (values[1] if len(values) > 1 else ""), place


def _bytes(dtype: ast.expr, size: ast.expr | None) -> int:
    """Return bytes of a buffer; 0 if a size is symbolic."""
    sizes = size.elts if isinstance(size, ast.List) else []
    known = [e.value for e in sizes if isinstance(e, ast.Constant) and isinstance(e.value, int)]
    if len(known) < len(sizes) or not isinstance(dtype, ast.Name):
        return 0
    digits = "".join(c for c in dtype.id if c.isdigit())
    bits = next((b for name, b in BITS.items() if dtype.id.startswith(name)), int(digits or 8))
    return prod(known) * bits // 8


def _calls(inside: Iterable[ast.AST], name: str) -> list[ast.Call]:
    return [
        node
        for part in inside
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def _text(node: ast.expr) -> str:
    if not isinstance(node, ast.Constant):
        raise ValueError("no name")
    return str(node.value)
