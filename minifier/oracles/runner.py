"""How an oracle runs candidates: the part that differs between a graph and a whole script."""

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
        """No run counts as a hang before so many seconds."""
        ...

    def start(self, question: Question[CandidateType], limits: Limits) -> Child:
        """Begin a run of a question in a child process."""
        ...

    def outcome(self, child: Child, ended: Ended) -> Outcome | None:
        """The outcome of a child that ended, with its decisions and what it cost.

        None where the run says nothing and has to be started again.
        """
        ...

    def write(
        self, candidate: CandidateType, toggles: Toggles, outcome: Outcome, path: Path
    ) -> None:
        """Write a candidate that fails under toggles as a repro script."""
        ...
