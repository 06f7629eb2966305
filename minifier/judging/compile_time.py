"""Does a program take too long to compile?

What counts is CPU time of this process: neither other processes nor a C++ compiler, whose kernels
may be cached, change the answer. The clock starts when the backend gets the graph. What running the
program takes is subtracted.
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

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.replay import run

CERTAINLY = 3.0
"""The compile of a forward is interrupted after this many times the allowed seconds."""
SHOWN = 5
"""Phases of a compile that a message names."""

Notify = Callable[[str], None]


class Interrupted(BaseException):
    """A compile took so long that it need not be waited for; no compiler catches this."""


@dataclass
class CompileTime:
    """Judges one case in a process of its own, on the main thread.

    As `notify` it learns when the compile begins; as `Extra` it judges a program that has run once.
    """

    longer_than: float
    """CPU-seconds that a compile may take."""
    notify: Notify
    began: float = 0.0

    def follow(self, phase: str) -> None:
        """The next phase of the run."""
        if phase == "compile" and not self.began:
            self.began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, CERTAINLY * self.longer_than)
        elif phase in ("forward", "backward"):
            signal.setitimer(signal.ITIMER_PROF, 0.0)  # it runs: backward may be compiled later
        self.notify(phase)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within the block a compile that takes far too long raises Interrupted."""
        before = signal.signal(signal.SIGPROF, _interrupt)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)

    def __call__(
        self,
        case: Case,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        compiles: Callable[[], int],
    ) -> Outcome:
        """The outcome of a case that was run once since the clock started: ok or slow."""
        ended = time.process_time()
        run(compiled, case, mark=True)
        running = time.process_time() - ended
        return self.outcome(ended - self.began - running)

    def interrupted(self) -> Outcome:
        """The outcome of a compile that was interrupted."""
        return self._slow(max(time.process_time() - self.began, CERTAINLY * self.longer_than))

    def outcome(self, seconds: float) -> Outcome:
        """The outcome of a compile that took so many CPU-seconds."""
        return self._slow(seconds) if seconds > self.longer_than else Outcome(Kind.OK)

    def _slow(self, seconds: float) -> Outcome:
        message = f"{seconds:.1f} CPU-seconds of compiling, {self.longer_than:g} are allowed"
        if phases := longest_phases():
            message += f"; seconds by phase, which may be nested: {phases}"
        times = min(seconds / self.longer_than, CERTAINLY)
        return Outcome(Kind.SLOW, "compile", "compile | slow", message, times=times)


def longest_phases() -> str:
    """The phases in which torch says that it spent most wall time in this process, and seconds."""
    sums = {name: sum(seconds) for name, seconds in compilation_time_metrics.items()}
    longest = sorted(sums, key=lambda name: -sums[name])[:SHOWN]
    return ", ".join(f"{name} {sums[name]:.1f}" for name in longest if sums[name] >= 0.1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
