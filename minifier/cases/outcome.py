"""The outcome of a case, and the signature by which two failures count as the same bug."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.events.search_events import GraphFailure
from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.cases.exception_identity import (
    causes,
    innermost_frame,
    normalised,
    root_cause,
    short_file,
)


class Resolution(StrEnum):
    """What a run says about the failure under search, in the terms of delta debugging."""

    FAILS = "fails"
    PASSES = "passes"
    UNRESOLVED = "unresolved"
    """It ended in another failure or was not a valid case, so it says nothing."""


class Kind(StrEnum):
    """How a case ended."""

    OK = "ok"
    WRONG = "wrong"
    EXCEPTION = "exception"
    CRASH = "crash"
    HANG = "hang"
    KILLED = "killed"
    SLOW = "slow"
    """Slower than eager by more than the limit."""
    RECOMPILE = "recompile"
    """Compiled again for inputs that the first compile should have covered."""
    BAD = "bad"
    """The user's own check rejected it."""
    INVALID = "invalid"
    """Not a valid case: eager fails on it, or Dynamo does not capture it."""


INTERRUPTED_AFTER = 2.0
"""A compile is interrupted at this multiple of its limit."""
PHASES = ("eager", "capture", "compile", "forward", "backward")
"""The phases of a run, in order."""


@dataclass(frozen=True)
class Outcome:
    """The result of one run of a case.

    `signature` is empty if the run passed. `phase` is the phase in which the run ended: eager,
    capture, compile, forward or backward. `decisions` are the compiler's decisions, in order.
    """

    kind: Kind
    phase: str = ""
    signature: str = ""
    message: str = ""
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)
    times: float = field(default=0.0, compare=False)
    """The time of a slow case, or the error of a wrong value, as a multiple of the limit."""
    call: int = field(default=1, compare=False)
    """The number of the call whose results are wrong."""
    endless: bool = field(default=False, compare=False)
    """Whether a hang is known to be endless, whatever its time limit."""
    silence: float = field(default=0.0, compare=False)
    """The longest time without a sign of progress, in seconds."""
    silenced: bool = field(default=False, compare=False)
    """Whether a hang was ended because it showed no sign of progress, before its time limit."""
    memory: int = field(default=0, compare=False)
    """The most bytes that the run was seen to hold beyond what it shared when it began."""
    rounded: bool = field(default=False, compare=False)
    """Whether results that pass differ from those of eager in some bits."""
    drew: bool = field(default=False, compare=False)
    """Whether the graph draws random numbers."""
    output: int | None = field(default=None, compare=False)
    """The position of the result that is wrong; None if something else is."""
    named: str = field(default="", compare=False)
    """The call at which the compiler worked when it raised an exception; empty if unknown."""

    @property
    def failed(self) -> bool:
        """Whether the compiled program failed."""
        return self.kind not in (Kind.OK, Kind.INVALID)

    @property
    def direction(self) -> str:
        """The string "forward" or "backward"."""
        return "backward" if self.phase == "backward" else "forward"

    @property
    def event(self) -> GraphFailure:
        """The event that records this failure."""
        return GraphFailure(self.kind.value, self.signature, self.direction, self.message[:2000])

    @property
    def interrupted(self) -> bool:
        """Whether it is a compile that was interrupted, which is no matter of luck."""
        slow_compile = self.kind is Kind.SLOW and self.phase == "compile"
        return slow_compile and self.times >= INTERRUPTED_AFTER

    def still_shown_by(self, smaller: Outcome) -> bool:
        """Return whether a smaller case fails in the same way and as clearly.

        A slow case can shrink to one that is barely slow and fails only every other time, a wrong
        value to one that differs by little more than rounding, and a race to one that shows in few
        calls. The smaller case must keep at least the square root of the slowdown or of the error,
        and must be wrong in as early a call.
        """
        as_clear = smaller.times >= self.times**0.5 and smaller.call <= self.call
        return self.same_bug(smaller) and as_clear

    def same_bug(self, other: Outcome) -> bool:
        """Return whether two failures count as the same bug."""
        return self.failed and other.failed and _bug(self.signature) == _bug(other.signature)

    def resolve(self, other: Outcome) -> Resolution:
        """Return what another run says about this failure. A different failure is not a pass."""
        if self.same_bug(other):
            return Resolution.FAILS
        return Resolution.PASSES if other.kind is Kind.OK else Resolution.UNRESOLVED

    @property
    def compiles_slowly(self) -> bool:
        """Whether the failure is the compile time."""
        return self.kind is Kind.SLOW and self.phase == "compile"

    def ends_before(self, other: Outcome) -> bool:
        """Return whether this run ended in an earlier phase than another."""
        if self.phase not in PHASES or other.phase not in PHASES:
            return False
        return PHASES.index(self.phase) < PHASES.index(other.phase)


OUT_OF_MEMORY = "out of memory"
"""The end of the signature of a run that exceeded its memory limit."""
WRONG_ADDRESS = (
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: misaligned address",
)
"""Errors of a kernel that accesses a wrong address. Which one occurs depends on the memory."""
DAMAGED_MEMORY = ("SIGSEGV", "SIGBUS", "SIGABRT")
"""How a program that writes to a wrong address ends. glibc aborts if it finds a damaged heap."""
RUNNING = ("forward", "backward", "script")
"""The phases in which compiled code runs. In the others, a compiler aborts at an assertion."""


def _bug(signature: str) -> str:
    """Return a signature in which all errors of a wrong address have the same name."""
    phase, _, what = signature.partition(" | ")
    if phase in RUNNING and what in DAMAGED_MEMORY:
        return f"{phase} | {DAMAGED_MEMORY[0]}"
    for error in WRONG_ADDRESS:
        signature = signature.replace(error, WRONG_ADDRESS[0])
    return signature


def is_device_error(what: str) -> bool:
    """Return whether a normalised message is a CUDA device error.

    A later call reports the error of a kernel, so its exception class and frame say nothing.
    """
    return what.startswith(("CUDA error: ", "CUDA out of memory"))


def exception_signature(error: BaseException, phase: str) -> str:
    """Return phase, stage, class, innermost frame and normalised message of an exception.

    For a CUDA device error, return only phase and normalised message.
    """
    cause = root_cause(error)
    if is_device_error(what := normalised(str(cause))):
        return f"{phase} | {what}"
    stage = next((e.stage for e in causes(error) if isinstance(e, CompileError)), "")
    parts = (phase, stage, type(cause).__name__, innermost_frame(cause), what)
    return " | ".join(p for p in parts if p)


@dataclass(frozen=True)
class RaisedAt:
    """What identifies an exception in another process."""

    class_name: str
    what: str
    """The normalised message."""
    frame: str
    """The innermost frame as file:function; empty if unknown."""

    @classmethod
    def of(cls, outcome: Outcome) -> RaisedAt:
        """Read it from the outcome of a case that ended in an exception."""
        name, _, message = outcome.message.partition(":")
        what = normalised(message)
        before = outcome.signature.removesuffix(what).removesuffix(" | ")
        frame = before.rpartition(" | ")[2]
        return cls(name, what, frame if ":" in frame else "")

    def within(self, path: Path) -> bool:
        """Return whether a file of this name and folder raised the exception."""
        file = self.frame.rpartition(":")[0]
        return bool(file) and f"/{short_file(str(path.resolve()))}".endswith(f"/{file}")


def crash_signature(signal_number: int, phase: str) -> str:
    """Return phase and signal name."""
    return f"{phase} | {signal_name(signal_number)}"


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
