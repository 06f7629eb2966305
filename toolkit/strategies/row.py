"""A row of the tables, which draws one line of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcdebug.strategies.scope import Scope, Want

Draw = Callable[[Scope], str]
"""Draws the operands of a line and writes the line."""


@dataclass(frozen=True)
class Row:
    """An operation. `exact` means that its result is not rounded."""

    name: str
    draw: Draw
    exact: bool = False


def of_one(template: str, want: Want) -> Draw:
    """Return a line with one operand: `torch.sin({x})`."""
    return lambda scope: template.format(x=scope.operand(want))


def with_dim(template: str, want: Want) -> Draw:
    """Return a line with an operand that has dimensions, and one of these: `{x}.cumsum({dim})`."""

    def draw(scope: Scope) -> str:
        x = scope.operand(want)
        return template.format(x=x, dim=scope.dim(x))

    return draw
