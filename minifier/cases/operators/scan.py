"""Writes calls of scan so that Dynamo captures them again.

Dynamo passes what the step reads as the last argument of the operator, dynamic sizes among it. It
accepts only tensors there itself: the step must read numbers, as that of the user does.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, cast

import torch
from torch import fx

from tcdebug.minifier.cases.operators.python_text import indentation

SCAN = torch.ops.higher_order.scan
STEP, READ = 0, 3
"""The arguments with the step, and with what it reads."""
NAMES = {"partial": functools.partial}
"""What the text of a call needs. Dynamo takes a step as torch's own `scan` wraps it."""


def reads_numbers(node: fx.Node) -> bool:
    """Return whether the step of a scan reads numbers."""
    return node.target is SCAN and any(map(_is_number, _read(node)))


def reading_its_numbers(line: str, node: fx.Node) -> str:
    """Return the line of a call whose step reads the numbers that were among its arguments.

    Tensors stay arguments, because in eager no gradient reaches a tensor that the step reads.
    """
    statement = ast.parse(line.strip()).body[0]
    call = next(n for n in ast.walk(statement) if isinstance(n, ast.Call) and len(n.args) > READ)
    given = call.args[READ]
    assert isinstance(given, ast.List | ast.Tuple)
    number = [_is_number(value) for value in _read(node)]
    tensors = [e for e, n in zip(given.elts, number, strict=True) if not n]
    count = len(tensors)
    place = iter(range(-count, 0))
    passed = [
        ast.unparse(e) if n else f"at[{next(place)}]"
        for e, n in zip(given.elts, number, strict=True)
    ]
    first = f"*at[:-{count}]" if count else "*at"
    step = ast.unparse(call.args[STEP])
    wrapped = f"lambda *at, combine_fn: combine_fn({', '.join([first, *passed])})"
    text = f"partial({wrapped}, combine_fn={step})"
    call.args[STEP] = ast.parse(text, mode="eval").body
    given.elts = tensors
    return indentation(line) + ast.unparse(statement)


def _read(node: fx.Node) -> tuple[Any, ...]:
    return tuple(cast(tuple[Any, ...], node.args[READ])) if len(node.args) > READ else ()


def _is_number(value: Any) -> bool:
    example = value.meta.get("example_value") if isinstance(value, fx.Node) else value
    return isinstance(example, int | float | torch.SymInt | torch.SymFloat)
