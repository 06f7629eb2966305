"""Derives the outcome of a case from how the child that ran it ended."""

from __future__ import annotations

import msgspec

from tcdebug.minifier.cases.outcome import (
    OUT_OF_MEMORY,
    Kind,
    Outcome,
    crash_signature,
    signal_name,
)
from tcdebug.minifier.processes.process import Ended

BEFORE = ("", "eager", "capture")
"""The phases before the target gets the graph."""
ENDLESS = 76
"""The exit status of a process in which a kernel does not end."""
HANG = "hang"
"""The end of the signature of a run that exceeded its time limit."""


def outcome_of(ended: Ended) -> Outcome:
    """Return the outcome of a child, including one that died without an answer."""
    phase = ended.phase
    if ended.timed_out:
        kind = Kind.INVALID if phase in BEFORE else Kind.HANG
        what = "of the compile " * (phase == "compile")
        message = f"no end {what}after {ended.seconds:.0f} s"
        if ended.silenced:
            message = f"no sign of progress {what}for {ended.silence:.0f} s"
        return Outcome(kind, phase, f"{phase} | {HANG}", message, silenced=ended.silenced)
    if ended.over_memory:
        kind = Kind.INVALID if phase in BEFORE else Kind.KILLED
        return Outcome(kind, phase, f"{phase} | {OUT_OF_MEMORY}", "over the memory limit")
    if ended.status == ENDLESS and phase not in BEFORE:
        message = f"a kernel does not end; stopped after {ended.seconds:.0f} s"
        return Outcome(Kind.HANG, phase, f"{phase} | {HANG}", message, endless=True)
    if ended.answer is not None:
        return msgspec.json.decode(ended.answer, type=Outcome)
    kind = Kind.INVALID if phase in BEFORE else Kind.CRASH
    if ended.signal:
        signature = crash_signature(ended.signal, phase)
        return Outcome(kind, phase, signature, f"ended by {signal_name(ended.signal)}")
    return Outcome(kind, phase, f"{phase} | exit", "the process ended without an answer")
