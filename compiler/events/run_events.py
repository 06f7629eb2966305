"""Events of commands and of the processes that they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tcdebug.compiler.events.event import Event


@dataclass(frozen=True, slots=True)
class RunStart(Event):
    """A command started: its arguments and working directory."""

    kind: ClassVar[str] = "run.start"
    command: str
    argv: list[str]
    cwd: str


@dataclass(frozen=True, slots=True)
class RunEnd(Event):
    """A command ended: its exit status and the seconds it took."""

    kind: ClassVar[str] = "run.end"
    exit_status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EnvSnapshot(Event):
    """The versions and environment variables that a compile depends on."""

    kind: ClassVar[str] = "env.snapshot"
    tcdebug: str
    torch: str
    python: str
    platform: str
    threads: int
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigSnapshot(Event):
    """The torch settings that a script or its environment changed, as lines of Python."""

    kind: ClassVar[str] = "config.snapshot"
    changed: list[str]


@dataclass(frozen=True, slots=True)
class WorkerStart(Event):
    """A process was started to run a script or a candidate."""

    kind: ClassVar[str] = "worker.start"
    level: ClassVar[str] = "debug"
    purpose: str
    worker_pid: int


@dataclass(frozen=True, slots=True)
class OperatorCaptured(Event):
    """In eager, torch itself compiled the functions that a control-flow `operator` was given."""

    kind: ClassVar[str] = "operator.captured"
    operator: str


@dataclass(frozen=True, slots=True)
class CompiledCalled(Event):
    """The process called a compiled function for the first time."""

    kind: ClassVar[str] = "compiled.called"


@dataclass(frozen=True, slots=True)
class WorkerExit(Event):
    """A process that ran a script or a candidate ended.

    `exit_status` is its exit status, or the negative number of the signal that ended it.
    """

    kind: ClassVar[str] = "worker.exit"
    level: ClassVar[str] = "debug"
    purpose: str
    worker_pid: int
    exit_status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProfileRecorded(Event):
    """The profile of a process was written to `trace`, a file of the run folder.

    `frame` is the frame whose calls are the steps, `calls` their number. At most `steps` of them
    were to be measured. `copy_speeds` has the bytes per second that a device reads and writes in a
    copy. `operator_seconds` and `range_seconds` are what the profiler adds to an operator of torch,
    and to a range that Python makes.
    """

    kind: ClassVar[str] = "profile"
    trace: str
    steps: int
    frame: str
    calls: int
    copy_speeds: Mapping[str, float]
    operator_seconds: float
    range_seconds: float


RUN_EVENTS: tuple[type[Event], ...] = (
    RunStart,
    RunEnd,
    EnvSnapshot,
    ConfigSnapshot,
    WorkerStart,
    OperatorCaptured,
    CompiledCalled,
    WorkerExit,
    ProfileRecorded,
)
