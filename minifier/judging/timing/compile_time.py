"""Judges whether a program takes too long to compile.

It measures CPU time of this process, so that neither other processes nor a C++ compiler, whose
kernels may be cached, affect the result. The clock starts when the backend gets the graph. The run
time of the program is subtracted. A compile that takes far too long is interrupted, in forward and
in backward; a program that runs is not.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch._dynamo.utils import compilation_time_metrics
from torch._guards import CompileContext

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import INTERRUPTED_AFTER, Kind, Outcome
from tcdebug.minifier.judging.replay import run

TICK = 0.1
"""CPU-seconds between checks of whether torch is compiling."""
SHOWN = 5
"""The limit on compile phases in a message."""

Notify = Callable[[str], None]


class Interrupted(BaseException):
    """A compile took so long that the result is clear. No compiler catches this exception."""


@dataclass
class CompileTime:
    """Judges one case in a process of its own, on the main thread.

    As `notify` it learns when the compile starts. As `Extra` it judges a program that has run once.
    """

    longer_than: float
    """The limit on CPU-seconds of a compile."""
    notify: Notify
    began: float = 0.0
    compiling: float = 0.0
    """CPU-seconds of compiling so far, as a multiple of TICK."""

    def follow(self, phase: str) -> None:
        """Enter the next phase of the run."""
        if phase == "compile" and not self.began:
            self.began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
        self.notify(phase)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within the block a compile that takes far too long raises Interrupted."""
        before = signal.signal(signal.SIGPROF, self._tick)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)

    def _tick(self, number: int, frame: FrameType | None) -> None:
        if CompileContext.current_compile_id() is not None:
            self.compiling += TICK
            if self.compiling > INTERRUPTED_AFTER * self.longer_than:
                raise Interrupted

    def __call__(
        self,
        case: Case,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        compiles: Callable[[], int],
    ) -> Outcome:
        """Return the outcome, ok or slow, of a case that has run once since the clock started."""
        ended = time.process_time()
        run(compiled, case, mark=True)
        running = time.process_time() - ended
        return self.outcome(ended - self.began - running)

    def interrupted(self) -> Outcome:
        """The outcome of a compile that was interrupted."""
        return self._slow(self.compiling)

    def outcome(self, seconds: float) -> Outcome:
        """Return the outcome of a compile that took this many CPU-seconds."""
        return self._slow(seconds) if seconds > self.longer_than else Outcome(Kind.OK)

    def _slow(self, seconds: float) -> Outcome:
        message = f"compiling took {seconds:.1f} CPU-seconds; the limit is {self.longer_than:g}"
        if phases := longest_phases():
            message += f"; wall seconds by phase, which may be nested: {phases}"
        times = min(seconds / self.longer_than, INTERRUPTED_AFTER)
        return Outcome(Kind.SLOW, "compile", "compile | slow", message, times=times)


def longest_phases() -> str:
    """Return the phases in which torch reports the most wall time in this process, in seconds."""
    sums = {name: sum(seconds) for name, seconds in compilation_time_metrics.items()}
    longest = sorted(sums, key=lambda name: -sums[name])[:SHOWN]
    return ", ".join(f"{name} {sums[name]:.1f}" for name in longest if sums[name] >= 0.1)
