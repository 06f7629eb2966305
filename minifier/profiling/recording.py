"""Profiles the process of a script with torch.profiler, for a number of steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tcdebug.compiler import seams
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import ProfileRecorded
from tcdebug.minifier.profiling.calibration import copy_speeds, event_seconds
from tcdebug.minifier.profiling.triton_resources import loaded_kernels
from tcdebug.minifier.targets.stand_ins import StandIn

TRACE = "profile-{pid}.json"
"""The file in the run folder with the trace of a process."""


@dataclass(eq=False)
class StepCount:
    """Counts calls of the first frame that runs compiled, which are the steps of a script.

    `ended` is called once, when the step after the last one begins. The first step is a warm-up
    and does not count.
    """

    steps: int
    ended: Callable[[], None]
    frame: str | None = None
    calls: int = 0

    def wrap(self, backend: Any) -> Any:
        """Return the backend with the calls of its graphs counted."""
        return _CountedBackend(self, backend)

    def called(self, frame: str) -> None:
        """Count a call of a graph of a frame."""
        if self.frame is None:
            self.frame = frame
        if frame != self.frame:
            return
        self.calls += 1
        if self.calls == self.steps + 2:
            self.ended()


@dataclass(eq=False, slots=True)
class _CountedBackend(StandIn):
    """A backend whose graphs count their calls."""

    count: StepCount
    original: Any

    @property
    def compiler_name(self) -> str:
        """The name of the backend in torch's messages."""
        name = getattr(self.original, "compiler_name", None)
        return str(name or getattr(self.original, "__name__", self.original))

    def __call__(self, module: Any, inputs: Any) -> Callable[..., Any]:
        compiled = torch._dynamo.lookup_backend(self.original)(module, inputs)
        frame = seams.compile_id().partition("/")[0]

        def counted(*values: Any) -> Any:
            self.count.called(frame)
            return compiled(*values)

        return counted


@dataclass
class ProfileRecording:
    """The profile of this process. It ends after the last step, or when it is closed."""

    folder: Path
    log: EventLog
    steps: int
    count: StepCount = field(init=False)
    profiler: Any = field(init=False)
    running: bool = False

    def __post_init__(self) -> None:
        self.count = StepCount(self.steps, self.stop)
        activities = [ProfilerActivity.CPU]
        if torch.version.cuda is not None and torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self.profiler = profile(activities=activities, acc_events=True)  # without it, 2.11 warns

    def start(self) -> None:
        """Begin to record."""
        self.profiler.start()
        self.running = True

    def stop(self) -> None:
        """Stop recording, and write the trace. A second call does nothing."""
        if not self.running:
            return
        self.running = False
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
            torch.cuda.synchronize()
        self.profiler.stop()
        name = TRACE.format(pid=os.getpid())
        self.profiler.export_chrome_trace(str(self.folder / name))
        for event in loaded_kernels():
            self.log.emit(event)
        costs = event_seconds()
        self.log.emit(
            ProfileRecorded(
                name, self.steps, self.count.frame or "", self.count.calls, copy_speeds(), *costs
            )
        )


@contextlib.contextmanager
def recorded(folder: Path, log: EventLog, steps: int) -> Iterator[ProfileRecording]:
    """Profile this process while the block runs, for a number of steps."""
    recording = ProfileRecording(folder, log, steps)
    recording.start()
    try:
        yield recording
    finally:
        recording.stop()
