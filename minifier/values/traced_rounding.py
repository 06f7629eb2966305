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
from tcdebug.minifier.judging.compare import CLEAR
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64, weights_in_float64
from tcdebug.minifier.judging.replay import Results, compare, fresh_capture, run
from tcdebug.minifier.targets.backends import EMBEDDED, Backend

TRACED = {EMBEDDED: ("passes", "lower", "fuse", "memory", "codegen")}
"""Backend -> what is off where its traced graphs run in plain torch. Otherwise the layer is."""


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


def _traced(
    backend: str, graph: Callable[..., Any], call: Callable[[Callable[..., Any]], Results]
) -> Results:
    """Call a graph of which a backend only traces and decomposes what it would compile."""
    toggles = Toggles.parse(TRACED.get(backend, (BACKEND,)))
    target = Backend(backend, backend)
    with fresh_capture(), target.compiled(graph, toggles, lambda phase: None) as compiled:
        return call(compiled)
