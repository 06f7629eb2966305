"""What a drawn program came to, as data that crosses processes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tcdebug.minifier.cases.outcome import Outcome


class Status(StrEnum):
    """How a program ended.

    Discarded is one whose difference rounding alone explains; known is a failure that a finding
    covers; invalid is what eager refuses, or what Dynamo captures nothing of.
    """

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known"
    DISCARDED = "discarded"
    INVALID = "invalid"


class ProgramVerdict(msgspec.Struct, frozen=True):
    """The end of one program. `fused` are pairs of operators that came into one kernel."""

    status: Status
    kind: str = "ok"
    phase: str = ""
    signature: str = ""
    message: str = ""
    fused: tuple[str, ...] = ()
    second: bool = False
    """Whether there was a second call, with other sizes."""
    seconds: float = 0.0


def failed(outcome: Outcome) -> ProgramVerdict:
    """The verdict on a failure; on what is none, invalid."""
    status = Status.FAILED if outcome.failed else Status.INVALID
    return ProgramVerdict(
        status, outcome.kind.value, outcome.phase, outcome.signature, outcome.message[:2000]
    )
