"""From a failing case to culprits, with what a bisection says written by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, Input
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.investigate import Branch, Found, Investigation
from tcdebug.minifier.oracles.oracle import Answers, Budget, Oracle, Question
from tcdebug.minifier.processes.isolation import Limits
from tcdebug.minifier.targets.backends import Backend

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")


class AlwaysWrong(Oracle):
    """Whatever is switched off, the case fails."""

    def answer(self, question: Question) -> Outcome:
        """The one failure."""
        return WRONG


@dataclass
class Told(Investigation):
    """What is bisected is told what comes out."""

    units: list[str] = field(default_factory=list)

    def _minimise(self, branch: Branch) -> None:
        x = Input("L_args_0_", torch.full((3,), len(self.branches)))
        branch.best = Case(branch.best.module, (x,))

    def _bisect(self, branch: Branch) -> None:
        decision = Decision(self.units.pop(0), "subject", "", 0, True)
        branch.base = self.base  # it fails by itself
        branch.fault = Fault(branch.failure, (decision,))


def test_a_unit_that_is_named_again_ends_the_search_for_further_faults(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    backend = Backend("tcdebug", "tcdebug", run_dir=str(tmp_path))
    oracle = AlwaysWrong(backend, log, Answers(tmp_path / "answers.jsonl"), Limits(9.0), Budget())
    found = Found(captured(torch.tanh, torch.ones(3)), WRONG, 0, Ambient.current())
    told = Told(found, oracle, log, Toggles(), units=["lower.a", "layer.b", "lower.a", "lower.c"])
    told._fault_by_fault()
    assert [b.off for b in told.branches] == [["lower.a"], ["layer.b"]]
    assert told.units == ["lower.c"]
    assert told.notes == ["with lower.a off it fails too, and lower.a is named again"]
    assert not told.confirmed
