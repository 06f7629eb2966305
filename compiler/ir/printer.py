"""Prints the loop IR as Python.

    @pointwise("add_1", float32, size=[s0, 64], stride=[64, 1], origin=("add_1", "aten.add.Tensor"))
    def add_1(i0, i1):
        t0 = load(float32, "x", i0, i1)
        t1 = load(float32, "bias", i1)
        return add(t0, t1)

`parse.parse_graph` reads the text of `print_graph` back and gives an equal graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, Index, Symbol
from tcdebug.compiler.ir.arithmetic.index_text import IndexText, render
from tcdebug.compiler.ir.expr import (
    Call,
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Parameter,
    indices,
    indirect_atoms,
    walk,
)
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Input,
    LoopNode,
    Node,
    Origin,
    Pointwise,
    Ref,
    Scan,
    Scatter,
)
from tcdebug.compiler.ir.operations import OPERATIONS


class _Text(IndexText):
    """Writes indices. Indirect indices refer to temporaries of the printed function."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def atom(self, atom: Any) -> str:
        if isinstance(atom, Indirect):
            size = render(atom.size, self)
            checked = ", checked=True" if atom.checked else ""
            return f"at({self.names[atom.expr.key]}, {size}{checked})"
        return super().atom(atom)


DTYPE_NAMES = frozenset(
    str(value).removeprefix("torch.")
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
)
TEXT = "_text"
"""The attribute of a node that caches its text."""
CONSTRUCTORS = frozenset(
    (
        *OPERATIONS, *DTYPE_NAMES, "load", "constant", "parameter", "index_value", "guarded", "at",
        "max", "min", "torch", "operator", "symbol", "ref", "size", "device", "buffer",
        "input_buffer", "input_size", "input_other", "constant_value", "pointwise", "reduction",
        "scan", "scatter", "extern", "output",
    )
)  # fmt: skip
"""The names that the printed text uses. No printed function may have one of them."""


def dtype_text(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def print_expr(expr: Expr, indent: str = "    ", index: Sequence[Index] | None = None) -> str:
    """Return the body of a function that returns the expression, or (`index`, expression)."""
    names: dict[str, str] = {}
    text = _Text(names)
    lines: list[str] = []
    if index is not None:
        roots = (*(atom.expr for i in index for atom in indirect_atoms(i)), expr)
        for node in {n.key: n for root in roots for n in walk(root)}.values():
            line = _expr_text(node, [names[o.key] for o in node.operands], text)
            names[node.key] = f"t{len(names)}"
            lines.append(f"{indent}{names[node.key]} = {line}")
        where = ", ".join(render(i, text) for i in index)
        return "\n".join([*lines, f"{indent}return [{where}], {names[expr.key]}"])
    order = list(walk(expr))
    for node in order:
        operands = [names[o.key] for o in node.operands]
        line = _expr_text(node, operands, text)
        if node is order[-1]:
            lines.append(f"{indent}return {line}")
        else:
            names[node.key] = f"t{len(names)}"
            lines.append(f"{indent}{names[node.key]} = {line}")
    return "\n".join(lines)


def _index_text(index: Index, text: IndexText) -> str:
    """Return an index as Python. Without indirect indices, the cached text of the index is used."""
    return render(index, text) if indirect_atoms(index) else repr(index)


def _expr_text(node: Expr, operands: Sequence[str], text: IndexText) -> str:
    dtype = dtype_text(node.dtype)
    where = [_index_text(i, text) for i in indices(node)]
    match node:
        case Load():
            return f"load({', '.join([dtype, repr(node.buffer), *where])})"
        case Constant():
            return f"constant({dtype}, {_number(node.value)})"
        case Parameter():
            return f"parameter({dtype}, {node.name!r})"
        case IndexValue():
            return f"index_value({dtype}, {where[0]})"
        case Guarded():
            return f"guarded({', '.join(operands)})"
        case Call(name="cast"):
            return f"cast({operands[0]}, {dtype})"
        case Call():
            return f"{node.name}({', '.join(operands)})"
    raise TypeError(f"no such expression: {node!r}")


def _number(value: bool | int | float) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def _index_list(values: Iterable[Index]) -> str:
    return "[" + ", ".join(map(repr, values)) + "]"


def _buffer_text(buffer: Buffer) -> str:
    text = f"{dtype_text(buffer.dtype)}, size={_index_list(buffer.size)}"
    text += f", stride={_index_list(buffer.stride)}"
    if buffer.device.type != "cpu":
        text += f", device={str(buffer.device)!r}"
    return text


def _origin_text(origin: Origin) -> str:
    parts = [repr(origin.node), repr(origin.op)]
    if origin.location is not None:
        here = origin.location
        parts += [repr(here.filename), str(here.line), repr(here.name)]
    return f"({', '.join(parts)})"


def _axes_text(axes: Sequence[Axis]) -> str:
    return "{" + ", ".join(f"{a.name!r}: {a.size}" for a in axes) + "}"


def print_loop(node: LoopNode, indent: str = "") -> str:
    """Return a loop node as a decorated function."""
    axes = list(node.axes)
    arguments = [repr(node.name), _buffer_text(node.out), f"axes={_axes_text(node.axes)}"]
    kind = "pointwise"
    if not isinstance(node, Pointwise):
        kind = "scan" if isinstance(node, Scan) else "reduction"
        axes += node.reduced
        arguments += [f"over={_axes_text(node.reduced)}", f"kind={node.kind!r}"]
    if isinstance(node, Scatter):
        kind = "scatter"
    elif node.index != tuple(Index({(a,): 1}) for a in node.filled):
        arguments.append(f"index={_index_function(node)}")
    if isinstance(node, Pointwise) and node.into:
        arguments.append(f"into={node.into!r}")
    arguments.append(f"origin={_origin_text(node.origin)}")
    head = f"@{kind}({', '.join(arguments)})"
    function = f"def {_identifier(node.name)}({', '.join(a.name for a in axes)}):"
    body = print_expr(node.body, index=node.index if isinstance(node, Scatter) else None)
    return "\n".join(indent + line for line in [head, function, *body.split("\n")])


def _index_function(node: LoopNode) -> str:
    names = ", ".join(a.name for a in node.filled)
    return f"lambda {names}: {_index_list(node.index)}"


def _identifier(name: str) -> str:
    if name in CONSTRUCTORS or iskeyword(name):
        return f"{name}_"
    return name if name.isidentifier() else "_" + "".join(c if c.isalnum() else "_" for c in name)


def argument_text(value: Any, name_of: Callable[[Any], str]) -> str:
    """Return an argument of an extern call. `name_of` writes the leaves that have no literal."""
    match value:
        case Ref():
            return f"ref({value.name!r})"
        case Index():
            return f"size({render(value)})"
        case None | bool() | int() | str():
            return repr(value)
        case float():
            return _number(value)
        case torch.dtype():
            return dtype_text(value)
        case torch.device():
            return f"device({str(value)!r})"
        case torch.layout() | torch.memory_format():
            return str(value)
        case slice():
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(argument_text(p, name_of) for p in parts)})"
        case tuple() | list():
            inner = ", ".join(argument_text(v, name_of) for v in value)
            return f"[{inner}]"
        case dict():
            inner = ", ".join(f"{k!r}: {argument_text(v, name_of)}" for k, v in value.items())
            return f"{{{inner}}}"
    return name_of(value)


def target_text(target: Any) -> str:
    """The qualified Python name of an operator: torch.ops.aten.mm.default, operator.getitem."""
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"  # type: ignore[no-untyped-call] # torch's is
    if isinstance(target, FunctionType | BuiltinFunctionType):
        module = {"_operator": "operator"}.get(target.__module__ or "", target.__module__)
        return f"{module}.{target.__name__}"
    return f"opaque({type(target).__qualname__!r})"


def print_extern(node: Extern, indent: str = "") -> str:
    """Return an extern call as a call of `extern`."""
    arguments = [repr(node.name), target_text(node.target)]
    arguments.append(f"args={argument_text(tuple(node.args), target_text)}")
    if node.kwargs:
        arguments.append(f"kwargs={argument_text(dict(node.kwargs), target_text)}")
    if node.out is not None:
        arguments.append(f"out=buffer({node.out.name!r}, {_buffer_text(node.out)})")
    for field in ("alias_of", "mutates", "effect"):
        if getattr(node, field):
            arguments.append(f"{field}={getattr(node, field)!r}")
    if node.binds:
        inner = ", ".join(f"{s.name}: {_path_text(p)}" for s, p in node.binds.items())
        arguments.append(f"binds={{{inner}}}")
    arguments.append(f"origin={_origin_text(node.origin)}")
    return f"{indent}extern({', '.join(arguments)})"


def _path_text(path: Sequence[Any]) -> str:
    return "[" + ", ".join(repr(step) for step in path) + "]"


def print_node(node: Node) -> str:
    """The text of a node, cached on it: nodes are immutable, and most pass stages unchanged."""
    known: dict[str, str] = node.__dict__
    if TEXT not in known:
        known[TEXT] = print_extern(node) if isinstance(node, Extern) else print_loop(node)
    return known[TEXT]


def _input_text(spec: Input) -> str:
    if spec.buffer is not None:
        return f"input_buffer({spec.name!r}, {_buffer_text(spec.buffer)})"
    if spec.symbol is not None:
        return f"input_size({spec.name!r}, {spec.symbol.name})"
    return f"input_other({spec.name!r})"


def graph_symbols(graph: Graph) -> list[Symbol]:
    """Return every size symbol in a graph, sorted by name."""
    found: set[Symbol] = set()
    for spec in graph.inputs:
        if spec.symbol is not None:
            found.add(spec.symbol)
    for index in {i for b in graph.buffers().values() for i in (*b.size, *b.stride)}:
        found |= index.symbols
    for node in graph.nodes:
        if isinstance(node, Extern):
            found |= set(node.binds)
        else:
            found |= node.body.symbols
    return sorted(found, key=lambda s: s.name)


def _modules(graph: Graph) -> list[str]:
    """Return the modules to import for the targets of extern calls, without torch and operator."""
    targets = [target_text(n.target) for n in graph.nodes if isinstance(n, Extern)]
    named = {text.rpartition(".")[0] for text in targets if text.isascii() and "(" not in text}
    return sorted(m for m in named if m.partition(".")[0] not in ("", "torch", "operator"))


def print_graph(graph: Graph, title: str = "") -> str:
    """Return the graph as Python. `title` becomes a comment in the first line."""
    lines = [f"# {title}"] if title else []
    lines += [f"import {module}" for module in _modules(graph)]
    lines += [f"{s.name} = symbol({s.name!r}, lower={s.lower})" for s in graph_symbols(graph)]
    lines += [_input_text(spec) for spec in graph.inputs]
    for name in graph.constants:
        lines.append(f"constant_value({name!r})")
    blocks = ["\n".join(lines)]
    blocks += [print_node(node) for node in graph.nodes]
    blocks.append(f"output({', '.join(argument_text(o, target_text) for o in graph.outputs)})")
    return "\n\n".join(blocks) + "\n"
