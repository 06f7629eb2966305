"""Derives the data flow of a graph that inductor compiled, from its post-grad graph and its code.

The texts are Python. They are parsed, never executed, since a run folder may come from others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tcdebug.minifier.trace.inductor_code import (
    UPDATED,
    kernel_pointers,
    nodes_of_kernels,
)
from tcdebug.minifier.trace.inductor_steps import lines_of_nodes
from tcdebug.reading.dataflow import Box, Flow

KERNEL, EXTERN, INPUT, OUTPUT, NODE = "kernel", "extern", "input", "output", "pointwise"
GRAPH_CLASS = re.compile(r"^class [\w<>]+\(", re.MULTILINE)
"""Its name may be <lambda>."""
TENSOR = re.compile(r"[a-z]+(\d+)\w*\[([^\]]*)\]")
"""The type of a tensor in a graph's text: f32[2, 4]."""
VIEWS = frozenset(
    {
        "alias", "as_strided", "detach", "diagonal", "expand", "permute", "reshape", "select",
        "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze",
        "view", "_unsafe_view",
    }
)  # fmt: skip
"""Operators of ATen whose results share memory with their operand."""
ALIASES = frozenset({"reinterpret_tensor", "getitem"})
INPUTS_PREFIX = "in_"
"""The prefix of parameters that a kernel only reads."""


def inductor_flow(graph: str, code: str, computed: Mapping[str, Sequence[str]]) -> Flow | None:
    """Return the operators of a post-grad graph, and the kernels and library calls made of them.

    `computed` lists the nodes of kernels as far as a run recorded them; comments in the code name
    those of Triton's kernels. A node of which neither is known belongs to no kernel. None if a text
    cannot be read.
    """
    try:
        before = _operators(graph)
        after = list(_calls(code, {box.name: box.written for box in before}))
    except (SyntaxError, ValueError, IndexError, AttributeError, KeyError):
        return None
    if not any(box.kind == KERNEL for box in after):
        return None
    library = {box.op.partition(".")[0] for box in after if box.kind == EXTERN}
    owner = {n: name for name, nodes in nodes_of_kernels(code).items() for n in nodes}
    owner |= {node: name for name, nodes in computed.items() for node in nodes}
    count: dict[str, int] = {}
    for box in before:
        box.group = owner.get(box.name, "")
        if not box.group and _operator(box.op) in library:
            box.kind, box.moved = EXTERN, 0
        count[box.group] = count.get(box.group, 0) + bool(box.group)
    for box in after:
        if box.kind == KERNEL and (operators := count.get(box.group)):
            box.op = f"{operators} operator{'s' * (operators > 1)}"
    return Flow(before, after, "operator", grouped=any(box.group for box in before))


def _operators(text: str) -> list[Box]:
    """Return the inputs, operators and output of a graph's text. Views are left out."""
    forward = _function(GRAPH_CLASS.sub("class Graph(", text), "forward")
    places = lines_of_nodes(text)
    root: dict[str, str] = {}
    boxes: dict[str, Box] = {}
    for argument in forward.args.args[1:]:
        written = _tensor_bytes(argument.annotation)
        boxes[argument.arg] = Box(argument.arg, INPUT, "", "", [], written, 0)
    for statement in forward.body:
        if isinstance(statement, ast.Return):
            boxes[OUTPUT] = Box(OUTPUT, OUTPUT, "", "", _read(statement.value, root, boxes), 0, 0)
            continue
        target, value, annotation = _assigned(statement)
        if not target or value is None or isinstance(value, ast.Constant):
            continue
        reads = _read(value, root, boxes)
        function = ast.unparse(value.func) if isinstance(value, ast.Call) else "getitem"
        operator = function.removeprefix("torch.ops.")
        if operator in ALIASES or _operator(operator) in VIEWS:
            if reads:
                root[target] = reads[0]
            continue
        written = _tensor_bytes(annotation)
        moved = written + sum(boxes[r].written for r in reads)
        boxes[target] = Box(
            target, NODE, operator, places.get(target, ""), reads, written, moved if written else 0
        )
    return list(boxes.values())


def _operator(name: str) -> str:
    """Return the operator without its namespace and overload: mm of aten.mm.default."""
    return name.partition(".")[2].partition(".")[0]


@dataclass
class _Wrapper:
    """What is known of the buffers of a wrapper while its calls are read in order."""

    size: dict[str, int]
    """Bytes by buffer."""
    root: dict[str, str] = field(default_factory=dict)
    """The buffer behind another name."""
    writer: dict[str, str] = field(default_factory=dict)
    """The box that wrote a buffer last."""
    names: dict[str, int] = field(default_factory=dict)

    def buffer(self, name: str) -> str:
        """Return the buffer behind a name."""
        return self.root.get(name, name)

    def box(self, kind: str, called: str, read: Sequence[str], written: Sequence[str]) -> Box:
        """Return the box of a call, which has now written its results."""
        self.names[called] = number = self.names.get(called, 0) + 1
        name = called if number == 1 else f"{called}:{number}"
        reads = dict.fromkeys(self.writer[b] for b in read if b in self.writer)
        bytes_written = sum(self.size.get(b, 0) for b in written)
        moved = bytes_written + sum(self.size.get(b, 0) for b in dict.fromkeys(read))
        self.writer |= dict.fromkeys(written, name)
        kernel = kind == KERNEL
        return Box(
            name, kind, "" if kernel else called, "", list(reads), bytes_written,
            moved if kernel else 0, called if kernel else "",
        )  # fmt: skip


def _calls(code: str, sizes: Mapping[str, int]) -> Iterator[Box]:
    """Yield the inputs, kernels, library calls and output of a wrapper, in order."""
    pointers = kernel_pointers(code)
    wrapper = _Wrapper(dict(sizes))
    for statement in _flat(_function(code, "call").body):
        if isinstance(statement, ast.Return):
            found = [wrapper.buffer(n) for n in _names(statement.value)]
            reads = dict.fromkeys(wrapper.writer[b] for b in found if b in wrapper.writer)
            yield Box(OUTPUT, OUTPUT, "", "", list(reads), 0, 0)
            return
        if _is_unpacking(statement):
            for name in _names(statement.targets[0]):  # type: ignore[attr-defined] # it is an assignment
                wrapper.writer[name] = name
                yield Box(name, INPUT, "", "", [], wrapper.size.get(name, 0), 0)
            continue
        target, value, _ = _assigned(statement)
        if isinstance(statement, ast.Expr):
            value = statement.value
        if target and isinstance(value, ast.Name | ast.Subscript):
            wrapper.root[target] = wrapper.buffer(_names(value)[0])
        elif isinstance(value, ast.Call):
            yield from _call(target, value, wrapper, pointers)


def _call(
    target: str,
    call: ast.Call,
    wrapper: _Wrapper,
    pointers: Mapping[str, Sequence[tuple[str, str]]],
) -> Iterator[Box]:
    """Yield the box of a call in a wrapper, if it computes something."""
    called = ast.unparse(call.func)
    kernel = called.removesuffix(".run")
    if called in ALIASES:
        wrapper.root[target] = wrapper.buffer(_names(call.args[0])[0])
    elif called.startswith("empty_strided"):
        wrapper.size[target] = _allocated(call)
    elif kernel in pointers:
        given = [wrapper.buffer(_names(a)[0]) if _names(a) else "" for a in call.args]
        both = list(zip(given, (name for name, _ in pointers[kernel]), strict=False))
        read = [b for b, p in both if p.startswith((INPUTS_PREFIX, UPDATED))]
        written = [b for b, p in both if not p.startswith(INPUTS_PREFIX) or p.startswith(UPDATED)]
        yield wrapper.box(KERNEL, kernel, read, written)
    elif called.startswith(("extern_kernels.", "torch.ops.", "aten.")):
        into = [k.value for k in call.keywords if k.arg == "out"]
        outputs = [wrapper.buffer(n) for value in into for n in _names(value)]
        operands = [a for a in call.args] + [k.value for k in call.keywords if k.arg != "out"]
        read = [wrapper.buffer(n) for value in operands for n in _names(value)]
        name = re.sub(r"^(extern_kernels|torch\.ops\.\w+|aten)\.", "", called)
        yield wrapper.box(EXTERN, name, read, outputs or [target] * bool(target))


def _function(text: str, name: str) -> ast.FunctionDef:
    """Return the first function of this name. Raises ValueError if there is none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ValueError(f"no function {name}")


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, and of its `with` and `try` blocks."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.With | ast.Try):
            yield from _flat(statement.body)


def _is_unpacking(statement: ast.stmt) -> bool:
    """Return whether this is `a, b = args`."""
    return isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args"


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr | None, ast.expr | None]:
    """Name, value and annotation of an assignment to one name; the name is empty otherwise."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value, statement.annotation
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value, None
    return "", None, None


def _names(value: ast.AST | None) -> list[str]:
    """Return the names in an expression, except those of called functions and modules."""
    if value is None:
        return []
    if isinstance(value, ast.Call):
        parts = [*value.args, *(k.value for k in value.keywords)]
        return [name for part in parts for name in _names(part)]
    if isinstance(value, ast.Name):
        return [value.id]
    return [name for part in ast.iter_child_nodes(value) for name in _names(part)]


def _read(value: ast.expr | None, root: Mapping[str, str], boxes: Mapping[str, Box]) -> list[str]:
    """Return the boxes that an expression reads."""
    found = (root.get(name, name) for name in _names(value))
    return list(dict.fromkeys(name for name in found if name in boxes))


def _tensor_bytes(annotation: ast.expr | None) -> int:
    """Return bytes of a tensor; 0 if it is not a tensor, or a size is symbolic."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ""
    found = TENSOR.match(str(text))
    sizes = [s.strip() for s in found[2].split(",") if s.strip()] if found else []
    if found is None or not all(s.isdigit() for s in sizes):
        return 0
    return prod(map(int, sizes)) * int(found[1]) // 8


def _allocated(call: ast.Call) -> int:
    """Return bytes of a buffer that a wrapper allocates; 0 if a size is symbolic."""
    try:
        size, stride = ast.literal_eval(call.args[0]), ast.literal_eval(call.args[1])
    except ValueError:
        return 0
    dtype = ast.unparse(call.args[2]).removeprefix("torch.")
    digits = re.search(r"\d+", dtype)
    bits = int(digits[0]) if digits else 8
    elements: int = prod(n for n, step in zip(size, stride, strict=True) if step)
    return elements * bits // 8
