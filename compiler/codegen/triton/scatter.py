"""What a point of a scatter does to memory in Triton: a store, or an atomic operation.

Points run in no order, as in eager on a GPU: of several that replace one element any may win, and
the rounding of sums differs from run to run.
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
class Brought:
    """What a point brings to its element: `operation` is empty where that is replaced."""

    operation: str
    value: Expr
    unless: Expr | None = None
    """Where this holds, nothing is done."""


def brought(body: Expr, memory: str) -> Brought | None:
    """What a body does with what is in memory so far; None where no atomic operation does that."""
    if not _reads(body, memory):
        return Brought("", body)
    if not isinstance(body, Call):
        return None
    if body.name == "where" and not _reads(body.args[0], memory) and _is_old(body.args[1], memory):
        inner = brought(body.args[2], memory)
        if inner is None or inner.unless is not None:
            return None
        return Brought(inner.operation, inner.value, body.args[0])
    if body.name not in ATOMIC or body.dtype not in ADDED:
        return None
    if body.name != "add" and body.dtype in FLOATS:  # a NaN would lose
        return None
    old, new = body.args
    if not _is_old(old, memory) or _reads(new, memory):
        return None
    return Brought(ATOMIC[body.name], new)


def _reads(expr: Expr, memory: str) -> bool:
    return any(load.buffer == memory for load in loads(expr))


def _is_old(expr: Expr, memory: str) -> bool:
    return getattr(expr, "buffer", "") == memory
