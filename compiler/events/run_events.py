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


RUN_EVENTS: tuple[type[Event], ...] = (
    RunStart,
    RunEnd,
    EnvSnapshot,
    ConfigSnapshot,
    WorkerStart,
    WorkerExit,
)
