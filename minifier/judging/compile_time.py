"""Judges whether a program takes too long to compile.

It measures CPU time of this process, so that neither other processes nor a C++ compiler, whose
kernels may be cached, affect the result. The clock starts when the backend gets the graph. The run
time of the program is subtracted.
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
"""The compile of a forward is interrupted at this multiple of the limit."""
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

    def follow(self, phase: str) -> None:
        """Enter the next phase of the run."""
        if phase == "compile" and not self.began:
            self.began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, CERTAINLY * self.longer_than)
        elif phase in ("forward", "backward"):
            signal.setitimer(signal.ITIMER_PROF, 0.0)  # it runs; backward may be compiled later
        self.notify(phase)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise Interrupted in this block if a compile takes far too long."""
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
        """Return the outcome, ok or slow, of a case that has run once since the clock started."""
        ended = time.process_time()
        run(compiled, case, mark=True)
        running = time.process_time() - ended
        return self.outcome(ended - self.began - running)

    def interrupted(self) -> Outcome:
        """Return the outcome of a compile that was interrupted."""
        return self._slow(max(time.process_time() - self.began, CERTAINLY * self.longer_than))

    def outcome(self, seconds: float) -> Outcome:
        """Return the outcome of a compile that took this many CPU-seconds."""
        return self._slow(seconds) if seconds > self.longer_than else Outcome(Kind.OK)

    def _slow(self, seconds: float) -> Outcome:
        message = f"compiling took {seconds:.1f} CPU-seconds; the limit is {self.longer_than:g}"
        if phases := longest_phases():
            message += f"; wall seconds by phase, which may be nested: {phases}"
        times = min(seconds / self.longer_than, CERTAINLY)
        return Outcome(Kind.SLOW, "compile", "compile | slow", message, times=times)


def longest_phases() -> str:
    """Return the phases in which torch reports the most wall time in this process, in seconds."""
    sums = {name: sum(seconds) for name, seconds in compilation_time_metrics.items()}
    longest = sorted(sums, key=lambda name: -sums[name])[:SHOWN]
    return ", ".join(f"{name} {sums[name]:.1f}" for name in longest if sums[name] >= 0.1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
