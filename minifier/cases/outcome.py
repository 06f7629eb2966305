"""What became of a case: the outcome, and the signature that makes two failures the same bug."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.events.schema import GraphFailure
from tcdebug.compiler.gate.gate import Decision


class Resolution(StrEnum):
    """What a run says about a failure that is looked for, in the terms of delta debugging."""

    FAILS = "fails"
    PASSES = "passes"
    UNRESOLVED = "unresolved"
    """It ended in another failure, or is no case at all: it says nothing."""


class Kind(StrEnum):
    """How a case ended."""

    OK = "ok"
    WRONG = "wrong"
    EXCEPTION = "exception"
    CRASH = "crash"
    HANG = "hang"
    KILLED = "killed"
    SLOW = "slow"
    """Slower than eager by more than is allowed."""
    RECOMPILE = "recompile"
    """Compiled again for inputs that the first compile should have served."""
    BAD = "bad"
    """The user's own check says so."""
    INVALID = "invalid"
    """Eager fails on it, or Dynamo does not capture it: not a case at all."""


PHASES = ("eager", "capture", "compile", "forward", "backward")
"""The phases of a run, in order."""


@dataclass(frozen=True)
class Outcome:
    """The end of one run of a case.

    `signature` is empty when it went well; `phase` is where it was when it ended: eager, capture,
    compile, forward or backward. `decisions` are those of the compiler, in order.
    """

    kind: Kind
    phase: str = ""
    signature: str = ""
    message: str = ""
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    seconds: float = field(default=0.0, compare=False)
    cpu_seconds: float = field(default=0.0, compare=False)
    times: float = field(default=0.0, compare=False)
    """How many times the seconds of eager it took, where that is the failure."""

    @property
    def failed(self) -> bool:
        """Whether it is a failure of the compiled program."""
        return self.kind not in (Kind.OK, Kind.INVALID)

    @property
    def direction(self) -> str:
        """forward or backward."""
        return "backward" if self.phase == "backward" else "forward"

    @property
    def event(self) -> GraphFailure:
        """The event that tells of this failure."""
        return GraphFailure(self.kind.value, self.signature, self.direction, self.message[:2000])

    def still_shown_by(self, smaller: Outcome) -> bool:
        """Whether a smaller case fails like this, and as plainly.

        What is slow may become only just slow, and then fails every other time: half of it, on a
        scale of ratios, has to stay.
        """
        return self.same_bug(smaller) and smaller.times >= self.times**0.5

    def same_bug(self, other: Outcome) -> bool:
        """Whether two failures are taken for one bug."""
        return self.failed and other.failed and self.signature == other.signature

    def resolve(self, other: Outcome) -> Resolution:
        """What another run says about this failure: a different failure is no pass."""
        if self.same_bug(other):
            return Resolution.FAILS
        return Resolution.PASSES if other.kind is Kind.OK else Resolution.UNRESOLVED

    def ends_before(self, other: Outcome) -> bool:
        """Whether this run ended in an earlier phase than another one."""
        if self.phase not in PHASES or other.phase not in PHASES:
            return False
        return PHASES.index(self.phase) < PHASES.index(other.phase)


NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b\d+(\.\d+)?(e[+-]?\d+)?\b")
PATH = re.compile(r"(/[\w.+-]+)+/?")
NAME = re.compile(r"\b([A-Za-z_]+?)_\d+\b")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\u2018[^\u2019]*\u2019")
GENERATED = re.compile(r"^[0-9a-z]{40,}\.py$")
"""Files that a compiler names after what is in them."""
DEVICE = (
    (re.compile(r"^Triton Error \[CUDA\]: "), "CUDA error: "),
    (re.compile(r"^CUDA driver error: "), "CUDA error: "),
    (re.compile(r"^CUDA out of memory\..*"), "CUDA out of memory"),
    (re.compile(r"^CUDA error: out of memory.*"), "CUDA out of memory"),
    (re.compile(r"^(CUDA error: CU[A-Z]+_STATUS_[A-Z_]+).*"), r"\1"),
)
"""What errors of a CUDA device are called by whoever notices them first, and one name for each."""
PLAIN = (*DEVICE, (PATH, "<path>"), (QUOTED, "<name>"), (NAME, r"\1"), (NUMBER, "#"))


def normalised(message: str) -> str:
    """A message without what differs from run to run: numbers, paths, quoted names."""
    lines = message.strip().splitlines()
    text = lines[0] if lines else ""
    for pattern, replacement in PLAIN:
        text = pattern.sub(replacement, text)
    return text[:160]


def causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from, the first cause last."""
    current: BaseException | None = error
    while current is not None:
        yield current
        inner = getattr(current, "inner_exception", None)
        if not isinstance(inner, BaseException) or inner is current:
            inner = current.__cause__
        current = inner


def root_cause(error: BaseException) -> BaseException:
    """What an exception was first raised from, through Dynamo's and our own wrappers."""
    return list(causes(error))[-1]


def of_device(what: str) -> bool:
    """Whether a normalised message is that of an error of a CUDA device.

    A kernel's error is noticed by a later call: neither its class nor its place says anything.
    """
    return what.startswith(("CUDA error: ", "CUDA out of memory"))


def exception_signature(error: BaseException, phase: str) -> str:
    """Phase, stage, class, innermost frame and normalised message of an exception.

    Of an error of a CUDA device: phase and normalised message.
    """
    cause = root_cause(error)
    if of_device(what := normalised(str(cause))):
        return f"{phase} | {what}"
    stage = next((e.stage for e in causes(error) if isinstance(e, CompileError)), "")
    frames = traceback.extract_tb(cause.__traceback__)
    frame = ""
    if frames:
        last = frames[-1]
        frame = f"{_module(last.filename)}:{last.name}"
    parts = (phase, stage, type(cause).__name__, frame, what)
    return " | ".join(p for p in parts if p)


@dataclass(frozen=True)
class RaisedAt:
    """What an exception is known again by in another process."""

    class_name: str
    what: str
    """The normalised message."""
    frame: str
    """The innermost frame as file and function, empty where it is not known."""

    @classmethod
    def of(cls, outcome: Outcome) -> RaisedAt:
        """Of the outcome of a case that ended in an exception."""
        name, _, message = outcome.message.partition(":")
        what = normalised(message)
        before = outcome.signature.removesuffix(what).removesuffix(" | ")
        frame = before.rpartition(" | ")[2]
        return cls(name, what, frame if ":" in frame else "")


def _module(filename: str) -> str:
    """A file by its last two parts: paths differ between machines, generated names by content."""
    *_, folder, name = ("", *filename.split("/"))
    return "<generated>" if GENERATED.search(name) else f"{folder}/{name}".lstrip("/")


def crash_signature(signal_number: int, phase: str) -> str:
    """Phase and signal."""
    return f"{phase} | {signal_name(signal_number)}"


def signal_name(number: int) -> str:
    """SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
