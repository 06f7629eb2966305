"""Prints an FX graph as Python, with types, strides that are not row-major, and source lines.

    def forward(x: "f32[64, 32]", w: "f32[32, 8][1, 32]"):
        # /home/me/model.py:5 in f: h = torch.relu(x @ w)
        mm: "f32[64, 8]" = torch.ops.aten.mm.default(x, w)
        return (mm,)

The compiler prints a graph after each pass that changes it, in every compile. torch's own printer
writes code that can be run, and takes five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.ir.printer import target_text
from tcdebug.compiler.ir.user_lines import innermost_line

PLAIN = (int, float, bool, str, type(None), torch.dtype)
"""Types whose `repr` is printed as it is."""
SHORT = re.compile(r"(float|bfloat|int|uint|complex)(\d+)(?:_(\w+))?")
LETTERS = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
INDENT = "    "
WIDTH = 100


class GraphText:
    """Prints the graphs of one compile. It caches the text of each node and type."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[Any, str]] = {}
        self._lines: dict[fx.Node, tuple[tuple[Any, ...], str]] = {}

    def write(self, graph: fx.Graph | fx.GraphModule, name: str = "forward") -> str:
        """Return the text of a graph, followed by the graphs that its nodes call."""
        graph = graph.graph if isinstance(graph, fx.GraphModule) else graph
        return "\n\n".join(self._functions(graph, name)) + "\n"

    def _functions(self, graph: fx.Graph, name: str) -> Iterator[str]:
        yield self._function(graph, name)
        for node in graph.nodes:
            if node.op == "get_attr":
                inner = getattr(graph.owning_module, node.target, None)
                if isinstance(inner, fx.GraphModule):
                    yield from self._functions(inner.graph, node.target)

    def _function(self, graph: fx.Graph, name: str) -> str:
        arguments: list[str] = []
        lines: list[str] = []
        printed = ""
        for node in graph.nodes:
            if node.op == "placeholder":
                default = f" = {argument(node.args[0])}" if node.args else ""
                arguments.append(f"{node.name}{self._typed(node)}{default}")
                continue
            if node.op == "output":
                lines.append(f"{INDENT}return {argument(node.args[0])}")
                continue
            trace = node.meta.get("stack_trace")
            if trace and (where := user_line(trace)) not in ("", printed):
                printed = where
                lines += ["", f"{INDENT}# {where}"]
            lines.append(self._line(node))
        head = f"def {name}({', '.join(arguments)}):"
        if len(head) > WIDTH:  # one line each, so that a diff shows only what changed
            head = "\n".join([f"def {name}(", *(f"{INDENT * 2}{a}," for a in arguments), "):"])
        return "\n".join([head, *lines])

    def _line(self, node: fx.Node) -> str:
        """Return the line of a node, cached while everything that it shows is the same object."""
        shown = (node.args, node.kwargs, _value(node), node.target, node.op, node.name)
        known = self._lines.get(node)
        if known and all(now is then for now, then in zip(shown, known[0], strict=True)):
            return known[1]
        line = f"{INDENT}{node.name}{self._typed(node)} = {_call(node)}"
        self._lines[node] = shown, line
        return line

    def _typed(self, node: fx.Node) -> str:
        """Return the annotation of a node.

        Empty if its value is unknown or is not a tensor or symbol.
        """
        value = _value(node)
        if value is None:
            return ""
        known = self._types.get(id(value))
        if known is None:
            text = type_text(value)
            known = value, f': "{text}"' if text else ""
            self._types[id(value)] = known  # keeps the value alive, so that its id is not reused
        return known[1]


def _value(node: fx.Node) -> Any:
    """Return the fake value of a node. AOTAutograd and Dynamo store it under different names."""
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value


def type_text(value: Any) -> str:
    """Return the type of a value, such as f32[2, 3].

    Strides follow if they are not row-major, and the device if it is not the CPU. Symbolic sizes
    are never compared, because a comparison would add a guard.
    """
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"Sym({value})"
    if not isinstance(value, torch.Tensor):
        return ""
    text = f"{short_dtype(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if value.layout is not torch.strided:
        return f"{text} {str(value.layout).removeprefix('torch.')}"
    strides = value.stride()
    if not _row_major(value.shape, strides):
        text += f"[{', '.join(map(str, strides))}]"
    return text if value.device.type == "cpu" else f"{text} {value.device}"


@lru_cache(maxsize=64)
def short_dtype(dtype: torch.dtype) -> str:
    """f32 for torch.float32, f8e4m3fn for torch.float8_e4m3fn, b8 for torch.bool."""
    name = str(dtype).removeprefix("torch.")
    match = SHORT.fullmatch(name)
    if match is None:
        return "b8" if dtype is torch.bool else name
    return f"{LETTERS[match[1]]}{match[2]}{match[3] or ''}"


def _row_major(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Return whether strides are row-major. False if any size or stride is symbolic."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if type(size) is not int or type(stride) is not int:
            return False
        if size != 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


def _call(node: fx.Node) -> str:
    """Return the expression that computes a node."""
    target = node.target
    if node.op == "get_attr":
        return f"self.{target}"
    words = [argument(value) for value in node.args]
    if node.kwargs:
        words += [f"{name}={argument(value)}" for name, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{words[0]}.{target}({', '.join(words[1:])})"
    name = f"self.{target}" if node.op == "call_module" else _target(target)
    return f"{name}({', '.join(words)})"


_target = lru_cache(maxsize=2048)(target_text)


def argument(value: Any) -> str:
    """Return the text of an argument of a node."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(argument, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(argument, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {argument(v)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(map(argument, (value.start, value.stop, value.step)))})"
    return _target(value) if callable(value) and not isinstance(value, type) else repr(value)


def user_line(trace: str) -> str:
    """Return the innermost frame of a stack trace as "FILE:N in FUNCTION: CODE", or nothing."""
    found = innermost_line(trace)
    if found is None:
        return ""
    location, code = found
    place = f"{location.filename}:{location.line} in {location.name}"
    return f"{place}: {code}" if code else place
