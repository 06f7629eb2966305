"""The interface by which an oracle runs candidates. It differs between graphs and scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.processes.process import Child, Ended, Limits


class Runner(Protocol[CandidateType]):
    """Runs candidates of one kind in child processes."""

    @property
    def key(self) -> tuple[str, ...]:
        """Everything an answer depends on besides the question."""
        ...

    @property
    def least_hang_seconds(self) -> float:
        """The smallest time limit of a run, in seconds."""
        ...

    def start(self, question: Question[CandidateType], limits: Limits) -> Child:
        """Start a run of a question in a child process."""
        ...

    def outcome(self, child: Child, ended: Ended) -> Outcome | None:
        """Return the outcome of a child that ended, with its decisions and its cost.

        Returns None if the run says nothing and must be started again.
        """
        ...

    def write(
        self, candidate: CandidateType, toggles: Toggles, outcome: Outcome, path: Path
    ) -> None:
        """Write a candidate that fails under toggles as a repro script."""
        ...
