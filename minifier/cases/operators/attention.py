"""Writes calls of flex_attention so that Dynamo captures them again.

Dynamo passes what a score or mask function reads, tensors and dynamic numbers, as the last two
arguments of the operator. It accepts no such arguments itself: the functions must read the values,
as those of the user do.
"""

from __future__ import annotations

import ast
from typing import Any, cast

import torch
from torch import fx

from tcdebug.minifier.cases.operators.python_text import indentation

FLEX = torch.ops.higher_order.flex_attention
OWN = 7
"""The arguments of a call that Dynamo captures. It adds two tuples of values."""
NUMBERS = int | float | torch.SymInt | torch.SymFloat
SCORE, MASK = 3, 4
"""The arguments with the score function, and with the mask function as the last element."""


def is_captured_again(node: fx.Node) -> bool:
    """Return whether a call of flex_attention can be written as a call that Dynamo captures.

    In eager, no gradient reaches a tensor that a function reads.
    """
    if node.target is not FLEX or len(node.args) != OWN + 2:
        return False
    read = [element for argument in node.args[OWN:] for element in cast(tuple[Any, ...], argument)]
    values = [n.meta.get("example_value") if isinstance(n, fx.Node) else n for n in read]
    return all(
        not v.requires_grad if isinstance(v, torch.Tensor) else isinstance(v, NUMBERS)
        for v in values
    )


def reading_its_values(line: str) -> str:
    """Return the line of a call whose functions read the values that were its last arguments."""
    statement = ast.parse(line.strip()).body[0]
    call = next(n for n in ast.walk(statement) if isinstance(n, ast.Call) and len(n.args) > OWN)
    of_score, of_mask = (_elements(argument) for argument in call.args[OWN:])
    mask = call.args[MASK]
    assert isinstance(mask, ast.Tuple)
    call.args[SCORE] = _closed(call.args[SCORE], of_score)
    mask.elts[-1] = _closed(mask.elts[-1], of_mask)
    del call.args[OWN:]
    return indentation(line) + ast.unparse(statement)


def _elements(argument: ast.expr) -> list[ast.expr]:
    assert isinstance(argument, ast.Tuple)
    return argument.elts


def _closed(function: ast.expr, values: list[ast.expr]) -> ast.expr:
    """Return a function of the indices that passes values to another one, after its arguments."""
    if not values:
        return function
    text = f"lambda *at: {ast.unparse(function)}(*at, {', '.join(map(ast.unparse, values))})"
    return ast.parse(text, mode="eval").body
