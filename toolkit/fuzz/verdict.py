"""The verdict on a generated program, as data that crosses processes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tcdebug.minifier.cases.outcome import Outcome

LOST = ("CUDA error", "Triton Error [CUDA]")
"""What the messages of failed kernels contain."""


class Status(StrEnum):
    """The outcome of a program.

    Discarded: rounding alone explains the difference. Known: a finding covers the failure. Invalid:
    eager rejects the program, or Dynamo captures nothing of it.
    """

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known"
    DISCARDED = "discarded"
    INVALID = "invalid"


class ProgramVerdict(msgspec.Struct, frozen=True):
    """The verdict on one program. `fused` are pairs of operators in the same kernel."""

    status: Status
    kind: str = "ok"
    phase: str = ""
    signature: str = ""
    message: str = ""
    fused: tuple[str, ...] = ()
    second: bool = False
    """Whether there was a second call, with other sizes."""
    seconds: float = 0.0
    compiles: bool = True
    """False if the process that judged the program compiles nothing any more."""

    @property
    def device_lost(self) -> bool:
        """Whether a kernel failed, after which its process cannot use the GPU."""
        return any(text in self.message for text in LOST)


def failed(outcome: Outcome) -> ProgramVerdict:
    """Return the verdict on a failure; invalid for any other outcome."""
    status = Status.FAILED if outcome.failed else Status.INVALID
    return ProgramVerdict(
        status, outcome.kind.value, outcome.phase, outcome.signature, outcome.message[:2000]
    )
