"""Writes sizes, paths and functions as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcdebug.compiler.ir.arithmetic.index import Index
from tcdebug.compiler.ir.arithmetic.index_text import render


def function_text(parameters: str, lines: Sequence[str]) -> str:
    """Return the source of a function named `call`."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"def call({parameters}):\n{body}\n"


def items_text(items: Sequence[str]) -> str:
    """Return the items of a tuple, with a trailing comma if there is only one."""
    return f"{items[0]}," if len(items) == 1 else ", ".join(items)


def tuple_text(indices: Sequence[Index]) -> str:
    """Sizes or strides as a tuple."""
    return f"({items_text([render(i) for i in indices])})"


def path_text(name: str, path: Sequence[tuple[str, Any]]) -> str:
    """Return an expression for a part of a value. `seams.path_steps` describes the path."""
    text = name
    for step, argument in path:
        match step:
            case "call":
                text = f"{text}.{argument}()"
            case "item":
                text = f"{text}[{argument}]"
            case _:
                text = f"({text} // {argument})"
    return text
