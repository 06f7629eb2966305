"""The active runs: those of the current question, and those of questions that may come next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from tcdebug.minifier.processes.process import Child, Ended, wait

Question = TypeVar("Question")


@dataclass(frozen=True)
class CandidateRun(Generic[Question]):
    """A run that a question needs. `key` is the key of the question."""

    key: str
    question: Question


class Runs(Generic[Question]):
    """A limited number of active runs, each in a child that `start` starts."""

    def __init__(
        self, most: int, start: Callable[[Question], Child], affordable: Callable[[], bool]
    ) -> None:
        self.most = most
        self.cpu_seconds = 0.0
        """CPU-seconds of all runs that have ended, including those that were given up."""
        self._start = start
        self._affordable = affordable
        self._running: dict[Child, CandidateRun[Question]] = {}
        self._aside: dict[Child, CandidateRun[Question]] = {}
        """A run that goes on beside the others, and does not count."""

    def begin(self, run: CandidateRun[Question], times: int) -> bool:
        """Keep up to `times` runs of a question active as room permits, and at least one.

        Returns False if that is not affordable.
        """
        while len(self._running) >= self.most and not self._has(run.key):
            self._end(next(iter(self._running)))
        self._fill_up([run] * times)
        return self._has(run.key)

    def give_up(self, key: str) -> None:
        """End the active runs of a question."""
        for child in [c for c, run in self._running.items() if run.key == key]:
            self._end(child)

    def work_on(self, runs: Iterable[CandidateRun[Question]]) -> None:
        """Make the first of these runs active, as many as there is room for, and end all others.

        Each starts as soon as it is known and there is room, because finding the next may be slow.
        """
        wanted: list[CandidateRun[Question]] = []
        for run in islice(runs, self.most):
            wanted.append(run)
            self._fill_up(wanted)
        left = Counter(run.key for run in wanted)
        for child, run in list(self._running.items()):
            left[run.key] -= 1
            if left[run.key] < 0:
                self._end(child)
        self._fill_up(wanted)

    def child_of(self, key: str) -> Child | None:
        """Return the child of an active run of a question."""
        return next((child for child, run in self._running.items() if run.key == key), None)

    def set_aside(self, child: Child) -> None:
        """Let a run go on beside the others, until it ends or is ended."""
        self._aside[child] = self._running.pop(child)

    def end_aside(self) -> None:
        """End the run that goes on beside the others."""
        for child in self._aside:
            self.cpu_seconds += child.end().cpu_seconds
        self._aside.clear()

    def ended(
        self, seconds: float = float("inf")
    ) -> list[tuple[Child, CandidateRun[Question], Ended]]:
        """Wait until at least one run has ended, at most `seconds`, and return those that have."""
        active = self._running | self._aside
        try:
            over = wait(active, seconds)
        except BaseException:
            self._running.clear()  # wait() has ended them
            self._aside.clear()
            raise
        self.cpu_seconds += sum(ended.cpu_seconds for _, ended in over)
        for child, _ in over:
            self._running.pop(child, None)
            self._aside.pop(child, None)
        return [(child, active[child], ended) for child, ended in over]

    def _fill_up(self, wanted: Sequence[CandidateRun[Question]]) -> None:
        """Start the runs that are not active, while there is room and budget."""
        begun = Counter(run.key for run in self._running.values())
        for run in wanted:
            begun[run.key] -= 1
            if begun[run.key] < 0 and len(self._running) < self.most and self._affordable():
                self._running[self._start(run.question)] = run

    def _has(self, key: str) -> bool:
        return any(run.key == key for run in self._running.values())

    def _end(self, child: Child) -> None:
        del self._running[child]
        self.cpu_seconds += child.end().cpu_seconds
