"""Reads from the events of a run which layers of torch the script uses, or may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import recorded
from tcdebug.compiler.events.run_events import OperatorCaptured, WorkerStart
from tcdebug.compiler.events.schema import DecisionTaken, PassRan
from tcdebug.compiler.events.search_events import (
    CompilingAsked,
    CompilingMentioned,
    ProgramExported,
)
from tcdebug.minifier.cases.layer_names import (
    AOTINDUCTOR,
    CUDAGRAPHS,
    EXPORT,
    OPERATORS,
    OWN_BRANCHES,
    PROGRAM_PASSES,
)
from tcdebug.minifier.processes.job import SCRIPT_ON_DEVICES


def layers_seen(folder: Path) -> frozenset[str]:
    """Return which layers of those that only some scripts use were seen in a run.

    They are export, AOTInductor, gated passes, own branches, and operators that torch captures in
    eager. A GPU counts as `cudagraphs`, because the script may use CUDA graphs.
    """
    return frozenset(layer for record in recorded(folder) for layer in _seen_in(record))


def asked_at(folder: Path) -> list[str]:
    """Return the lines of the program that heard in eager that they are being compiled."""
    found = [r["data"]["line"] for r in recorded(folder) if r["event"] == CompilingAsked.kind]
    return list(dict.fromkeys(found))


def _seen_in(record: dict[str, Any]) -> set[str]:
    """Return which of these layers an event is about."""
    data: dict[str, Any] = record["data"]
    match record["event"]:
        case ProgramExported.kind:
            return {AOTINDUCTOR if data["packaged"] else EXPORT}
        case DecisionTaken.kind:  # the pass may not end
            return {PROGRAM_PASSES} & {str(record.get("unit", "")).partition(".")[0]}
        case PassRan.kind:
            return {PROGRAM_PASSES} & {record.get("stage")}
        case WorkerStart.kind:
            return {CUDAGRAPHS} if data["purpose"] == SCRIPT_ON_DEVICES else set()
        case CompilingMentioned.kind:
            return {OWN_BRANCHES}
        case OperatorCaptured.kind:
            return {OPERATORS}
    return set()
