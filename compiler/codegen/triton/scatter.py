"""Writes a scatter in Triton as a store or an atomic operation.

Points run in any order, as in eager on a GPU. If several points replace one element, any of them
may win, and the rounding of sums differs from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.expr import Call, Expr, loads
from tcdebug.compiler.ir.operations import FLOATS

ATOMIC = {"add": "add", "maximum": "max", "minimum": "min"}
"""Operations of the loop IR -> atomic ones of Triton."""
ADDED = (*FLOATS, torch.int32, torch.int64)


@dataclass(frozen=True)
class ScatterUpdate:
    """The update of an element: an atomic operation, or a store if `operation` is empty."""

    operation: str
    value: Expr
    unless: Expr | None = None
    """Where this condition holds, the element is not updated."""


def scatter_update(body: Expr, memory: str) -> ScatterUpdate | None:
    """The update that the body of a scatter makes; None if no atomic operation can make it."""
    if not _reads(body, memory):
        return ScatterUpdate("", body)
    if not isinstance(body, Call):
        return None
    if body.name == "where" and not _reads(body.args[0], memory) and _is_old(body.args[1], memory):
        inner = scatter_update(body.args[2], memory)
        if inner is None or inner.unless is not None:
            return None
        return ScatterUpdate(inner.operation, inner.value, body.args[0])
    if body.name not in ATOMIC or body.dtype not in ADDED:
        return None
    if body.name != "add" and body.dtype in FLOATS:  # atomic max and min ignore NaN
        return None
    old, new = body.args
    if not _is_old(old, memory) or _reads(new, memory):
        return None
    return ScatterUpdate(ATOMIC[body.name], new)


def _reads(expr: Expr, memory: str) -> bool:
    return any(load.buffer == memory for load in loads(expr))


def _is_old(expr: Expr, memory: str) -> bool:
    return getattr(expr, "buffer", "") == memory
