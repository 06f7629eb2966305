"""Decomposes composite ATen operators into simpler ones while AOTAutograd traces.

The table is torch's core ATen set, without operators that are better as one ATen call, and with
normalisations, softmax, activations and `_foreach` operators, whose parts can be fused. Each entry
is a unit, and each use of it a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.decompose.batch_norm import BATCH_NORM
from tcdebug.compiler.decompose.flat_indexing import FLAT_INDEXING
from tcdebug.compiler.decompose.foreach import FOREACH
from tcdebug.compiler.decompose.index_fill import INDEX_FILL
from tcdebug.compiler.decompose.nll_loss import NLL_LOSS
from tcdebug.compiler.decompose.operator_lists import ADDED, KEPT_WHOLE
from tcdebug.compiler.decompose.row_major import ROW_MAJOR
from tcdebug.compiler.decompose.smooth_l1 import SMOOTH_L1
from tcdebug.compiler.decompose.standard_deviation import DEVIATION
from tcdebug.compiler.decompose.threshold import THRESHOLD
from tcdebug.compiler.decompose.vector_norm import VECTOR_NORM
from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.registry import REGISTRY

Table = dict[Any, Callable[..., Any]]

OWN: Table = {
    **BATCH_NORM, **DEVIATION, **VECTOR_NORM, **NLL_LOSS,
    **ROW_MAJOR, **FLAT_INDEXING, **INDEX_FILL, **FOREACH, **SMOOTH_L1, **THRESHOLD,
}  # fmt: skip
"""Decompositions that replace torch's."""


def decompositions() -> Table:
    """Return the decompositions by operator, including registered ones."""
    return {**_listed(), **REGISTRY.decompositions}


@lru_cache(maxsize=1)
def _listed() -> Table:
    table: dict[Any, Callable[..., Any]] = dict(seams.core_aten_decompositions())
    table.update(seams.get_decompositions([_packet(name) for name in ADDED]))
    kept = {_packet(name) for name in KEPT_WHOLE}
    return {
        op: function
        for op, function in table.items()
        if isinstance(op, torch._ops.OpOverload)
        and op.overloadpacket not in kept
        and op.namespace in ("aten", "prims")
        and not op._schema.is_mutable
    } | OWN


def _packet(name: str) -> Any:
    return getattr(torch.ops.aten, name)


def unit(op: torch._ops.OpOverload) -> str:
    """Return the unit of an operator's decomposition: decompose.aten.gelu.default."""
    return f"decompose.{op}"


def gated(gate: Gate, added: Mapping[Any, Callable[..., Any]]) -> Table:
    """Return all decompositions, each of which asks the gate. If denied, the operator stays.

    `added` holds the caller's own, which override those of the table. A decomposition that raises
    becomes a CompileError.
    """
    table = {**decompositions(), **added}
    return {op: _gated(op, function, gate) for op, function in table.items()}


def _gated(
    op: torch._ops.OpOverload, function: Callable[..., Any], gate: Gate
) -> Callable[..., Any]:
    # without functools.wraps, which for hundreds of functions takes 2 % of a small compile
    def decompose(*args: Any, **kwargs: Any) -> Any:
        if not gate.allows(unit(op), str(op)):
            return NotImplemented
        try:
            return function(*args, **kwargs)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise CompileError("decompose", message, unit=unit(op)) from error

    return decompose
