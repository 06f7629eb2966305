"""Sizes, paths and functions as Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcdebug.compiler.ir.index import Index, render


def function_text(parameters: str, lines: Sequence[str]) -> str:
    """A function named `call`."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"def call({parameters}):\n{body}\n"


def tuple_text(indices: Sequence[Index]) -> str:
    """Sizes or strides as a tuple."""
    inner = ", ".join(render(i) for i in indices)
    return f"({inner}{',' if len(indices) == 1 else ''})"


def path_text(name: str, path: Sequence[tuple[str, Any]]) -> str:
    """A part of a value; see `seams.path_steps`."""
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
