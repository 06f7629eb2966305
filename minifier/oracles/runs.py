"""The runs at work at the same time: what is asked about, and what may be asked about next."""

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
    """A run that a question needs; `key` is that of the question."""

    key: str
    question: Question


class Runs(Generic[Question]):
    """At most so many runs at work, each in a child that `start` begins."""

    def __init__(
        self, most: int, start: Callable[[Question], Child], affordable: Callable[[], bool]
    ) -> None:
        self.most = most
        self.cpu_seconds = 0.0
        """Of all that have ended, those that were given up too."""
        self._start = start
        self._affordable = affordable
        self._running: dict[Child, CandidateRun[Question]] = {}

    def begin(self, run: CandidateRun[Question], times: int) -> bool:
        """Have a run at work so many times, where there is room, and once in any case.

        False where that is not affordable.
        """
        while len(self._running) >= self.most and not self._has(run.key):
            self._end(next(iter(self._running)))
        self._fill_up([run] * times)
        return self._has(run.key)

    def give_up(self, key: str) -> None:
        """End the runs of a question."""
        for child in [c for c, run in self._running.items() if run.key == key]:
            self._end(child)

    def work_on(self, runs: Iterable[CandidateRun[Question]]) -> None:
        """Have the first of these runs at work, as many as there is room for, and no others.

        Each begins as soon as it is known and there is room: to find the next may take a while.
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

    def ended(self) -> list[tuple[Child, CandidateRun[Question], Ended]]:
        """Wait until one of the runs has ended, or more."""
        try:
            over = wait(list(self._running))
        except BaseException:
            self._running.clear()  # it has ended them
            raise
        self.cpu_seconds += sum(ended.cpu_seconds for _, ended in over)
        return [(child, self._running.pop(child), ended) for child, ended in over]

    def _fill_up(self, wanted: Sequence[CandidateRun[Question]]) -> None:
        """Begin those of the runs that are not at work, while there is room and budget."""
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
