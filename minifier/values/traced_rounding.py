"""Distinguishes the rounding of a traced graph from wrong results.

A decomposition may round more often than the operator that it replaces, as those of norms do in
bfloat16. The results of a graph are then further from eager than eager's own error explains,
although no step is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import torch

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.layer_names import BACKEND
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.compare import CLEAR, difference
from tcdebug.minifier.judging.reference.other_roundings import other_runs
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64, weights_in_float64
from tcdebug.minifier.judging.replay import Results, compare, fresh_capture, run
from tcdebug.minifier.targets.backends import EMBEDDED, Backend

TRACED = {EMBEDDED: ("passes", "lower", "fuse", "memory", "codegen")}
"""Backend -> what is off where its traced graphs run in plain torch. Otherwise the layer is."""

REACH = 2.0
"""Few roundings are drawn, so that results may be this many times as far from eager."""


class TraceVerdict(StrEnum):
    """What the traced graphs of a case say about its results."""

    ROUNDS = "rounds"
    """They explain the results: they round as much, and agree with eager in float64."""
    WRONG = "wrong"
    """Their results differ from eager in float64 too: a decomposition is wrong."""
    UNKNOWN = "unknown"


def judge_trace(backend: str, case: Case, actual: Results, filename: str) -> TraceVerdict:
    """Compare the traced graphs of a case, in plain torch, with its results and with eager."""
    module = load(case, filename)
    traced = _traced(backend, module, partial(run, case=case, mark=True))
    explained = compare(case, module, traced, actual).kind is Kind.OK
    try:
        with weights_in_float64(module):
            wide = partial(run, case=case, dtype=torch.float64)
            exact = in_float64(module, wide)
            again = in_float64(module, lambda graph: _traced(backend, graph, wide))
    except Exception:  # an operator without a float64 kernel
        return TraceVerdict.UNKNOWN
    in_wide = compare(case, module, exact, again)
    if in_wide.failed and in_wide.times >= CLEAR:
        return TraceVerdict.WRONG
    return TraceVerdict.ROUNDS if explained and in_wide.kind is Kind.OK else TraceVerdict.UNKNOWN


def moved_by_rounding(case: Case, actual: Results, filename: str) -> bool:
    """Return whether other roundings move the results of eager about as far as these are.

    A model may decide by a rounded value, as a router in bfloat16 picks experts. Its results then
    jump, although no step is wrong.
    """
    module = load(case, filename)
    eager = run(module, case).tensors()
    pairs = [*zip(eager, actual.tensors(), strict=True)]
    left = {k: (e, a) for k, (e, a) in enumerate(pairs) if difference(e, a, None, "") is not None}
    if not all(_same_kind(e, a) for e, a in left.values()):
        return False
    for drawn in other_runs(lambda: run(module, case).tensors()):
        left = {k: (e, a) for k, (e, a) in left.items() if REACH * _far(drawn[k], e) < _far(a, e)}
        if not left:
            return True
    return False


def _same_kind(eager: torch.Tensor, actual: torch.Tensor) -> bool:
    """Return whether two results can only differ in their finite elements."""
    if (eager.shape, eager.dtype) != (actual.shape, actual.dtype):
        return False
    return bool((torch.isfinite(eager) == torch.isfinite(actual)).all())


def _far(value: torch.Tensor, eager: torch.Tensor) -> float:
    return float((value.double() - eager.double()).abs().nan_to_num(0.0, 0.0, 0.0).max())


def _traced(
    backend: str, graph: Callable[..., Any], call: Callable[[Callable[..., Any]], Results]
) -> Results:
    """Call a graph of which a backend only traces and decomposes what it would compile."""
    toggles = Toggles.parse(TRACED.get(backend, (BACKEND,)))
    target = Backend(backend, backend)
    with fresh_capture(), target.compiled(graph, toggles, lambda phase: None) as compiled:
        return call(compiled)
