"""From a failing case to culprits, with bisection results given by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault
from tcdebug.minifier.bisection.enabled import Enabled
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.branch import Branch, leaving_repro
from tcdebug.minifier.investigation.documenting import Documenting
from tcdebug.minifier.investigation.findings import FailureFindings, FailureFound
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import suspected_units, suspicion
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.search.repeats import Rate
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.targets.backends import Backend

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
RAISES = Outcome(Kind.EXCEPTION, "forward", "forward | AssertionError")
HANGS = Outcome(Kind.HANG, "compile", "compile | hang")
HANGS_LATER = Outcome(Kind.HANG, "backward", "backward | hang")


class AlwaysWrong(Oracle[Case]):
    """The case fails whatever is switched off."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return the one failure."""
        return WRONG


class EndsAtTheReserve(Oracle[Case]):
    """A step for which only a part of the budget is free uses all of that part."""

    kept = 0.0

    def answer(self, question: Question[Case]) -> Outcome:
        """Return the failure if nothing is reserved. Raises BudgetUsed."""
        if self.spending.reserved:
            self.kept = self.spending.reserved
            raise BudgetUsed
        return WRONG


class EndsInRepeats(Oracle[Case]):
    """The case passes without one unit, but no pass can be repeated."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return whether the unit is on. Raises BudgetUsed."""
        if question.purpose == "repeat of a pass":
            self.spending.budget = Budget(seconds=0.0)
            raise BudgetUsed
        decision = Decision("lower.a", "f", "1", 0, not question.toggles.texts())
        wrong = not question.toggles.texts() or question.toggles.texts() == ["all:1"]
        return replace(WRONG if wrong else Outcome(Kind.OK), decisions=(decision,))

    def rate(self, candidate: Case, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """Return that it fails every time."""
        return Rate(runs, runs)


class FailsOtherwiseWithout(Oracle[Case]):
    """Without one unit the case fails in a different way, and without the backend it passes."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return the outcome, with the decision of the unit."""
        off = question.toggles.texts()
        if off == ["layer.backend"]:
            return Outcome(Kind.OK)
        on = off in ([], ["all:1"])
        decisions = (Decision("lower.a", "f", "1", 0, on),)
        return replace(WRONG if on else RAISES, decisions=decisions)

    def rate(self, candidate: Case, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """Return that it fails every time."""
        return Rate(runs, runs)


class HangsInForwardAndBackward(FailsOtherwiseWithout):
    """A unit hangs in two kernels. The hang in forward hides the one in backward."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return the outcome, with the decisions about both nodes."""
        off = question.toggles.texts()
        first = not {"all", "all:0", "site:1", "codegen.a"} & set(off)
        second = not {"all", "all:0", "all:1", "site:2", "codegen.a"} & set(off)
        outcome = HANGS if first else HANGS_LATER if second else Outcome(Kind.OK)
        one = Decision("codegen.a", "f", "1", 0, first)
        return replace(outcome, decisions=(one, Decision("codegen.a", "g", "2", 1, second)))


class DecidedAlone(FailsOtherwiseWithout):
    """With all other units off, the case fails with the unit on and passes with it off."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return the outcome, with the decision of the unit."""
        off = question.toggles.texts()
        if off in (["all"], ["all:0"]):
            decision = Decision("lower.a", "f", "1", 0, False)
            return Outcome(Kind.OK, decisions=(decision,))
        if off == ["only:lower.a"]:
            return replace(WRONG, decisions=(Decision("lower.a", "f", "1", 0, True),))
        return super().answer(question)


class FailsThroughOneUnit(Oracle[Case]):
    """The whole case fails if and only if one unit is on. Other units do not matter to it."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return whether the unit is on."""
        return Outcome(Kind.OK) if "lower.b" in question.toggles.texts() else WRONG


class FailsThroughAPartner(Oracle[Case]):
    """The whole case passes without one setting. In it, no other unit matters."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return whether the setting is on."""
        return Outcome(Kind.OK) if "config.b" in question.toggles.texts() else WRONG


@dataclass
class Told(Investigation[Case]):
    """An investigation whose bisection results are given."""

    units: list[str] = field(default_factory=list)

    def _minimise(self, branch: Branch[Case]) -> None:
        x = CaseInput("L_args_0_", torch.full((3,), len(self.findings.branches)))
        branch.best = Case(branch.best.module, (x,))

    def _bisect(self, branch: Branch[Case]) -> None:
        decision = Decision(self.units.pop(0), "subject", "", 0, True)
        branch.base = self.findings.base  # it fails by itself
        branch.fault = Fault(branch.failure, (decision,))


def oracle_of(kind: type[Oracle[Case]], subject: GraphSubject, log: EventLog) -> Oracle[Case]:
    plain = graph_oracle(subject, Limits(9.0), Budget())
    return kind(
        subject, log, plain.answers, plain.limits, plain.spending, plain.criteria, plain.others
    )


def test_the_search_for_what_a_culprit_needs_leaves_time_to_confirm_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(EndsAtTheReserve, subject, log)
    oracle.spending = Spending(Budget(seconds=100.0), _began=time.monotonic() - 70.0)
    case = captured(torch.tanh, torch.ones(3))
    told = Told(FailureFindings(FailureFound(case, WRONG, 0), Toggles()), subject, oracle, log)
    branch = Branch(WRONG, Toggles(), case)
    told._find_enabled(branch, "lower.a", CandidateOracle(oracle, case), WRONG)
    assert branch.enabled is None
    assert isinstance(oracle, EndsAtTheReserve)
    assert oracle.kept == 20.0  # more than half of the 30 seconds that are left
    assert oracle.spending.affordable
    events = "".join(file.read_text() for file in tmp_path.glob("events*.jsonl"))
    assert "the units that lower.a needs are not known" in events


class SmallerGraphsTakeTheReserve(FailsThroughOneUnit):
    """Smaller graphs take all the time that is free for them. The failing unit is `lower.b`."""

    def answer(self, question: Question[Case]) -> Outcome:
        """Return whether the unit is on. Raises BudgetUsed for a graph of less than four nodes."""
        if question.candidate.size < 4:
            raise BudgetUsed
        on = "lower.b" not in question.toggles.texts() and "all" not in question.toggles.texts()
        decisions = (Decision("lower.b", "f", "1", 0, on),)
        return replace(WRONG if on else Outcome(Kind.OK), decisions=decisions)

    def rate(self, candidate: Case, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """Return that it fails every time."""
        return Rate(runs, runs)


def chain(x: torch.Tensor) -> torch.Tensor:
    return x.sin().cos().tanh().exp()


def test_a_culprit_is_named_in_the_whole_graph_if_minimising_takes_too_long(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(SmallerGraphsTakeTheReserve, subject, log)
    case = captured(chain, torch.ones(3))
    findings = FailureFindings(FailureFound(case, WRONG, 0), Toggles())
    Investigation(findings, subject, oracle, log)._fault_by_fault()
    (branch,) = findings.branches
    assert branch.off == ["lower.b"]
    assert branch.best.size == 4
    events = "".join(file.read_text() for file in tmp_path.glob("events*.jsonl"))
    assert "a smaller graph that fails in the same way was not searched for" in events


def test_minimising_alone_takes_the_whole_budget(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(EndsAtTheReserve, subject, log)
    case = captured(chain, torch.ones(3))
    findings = FailureFindings(FailureFound(case, WRONG, 0), Toggles())
    Investigation(findings, subject, oracle, log, bisecting=False)._fault_by_fault()
    assert findings.branches[0].best.size < 4


def test_minimising_a_hang_leaves_the_time_of_its_repro(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    oracle = oracle_of(AlwaysWrong, GraphSubject(Backend("tcdebug", "tcdebug"), log), log)
    oracle.spending = Spending(Budget(seconds=200.0), _began=time.monotonic() - 120.0)
    case, left = captured(torch.tanh, torch.ones(3)), []

    def minimise() -> None:
        left.append(round(oracle.spending.seconds_left))
        if oracle.spending.seconds_left < 10.0:
            raise BudgetUsed

    for failure in (Outcome(Kind.HANG, "compile", "compile | hang"), WRONG):
        leaving_repro(oracle, log, Branch(failure, Toggles(), case), minimise)
    assert left == [5, 80]
    assert oracle.spending.affordable
    events = "".join(file.read_text() for file in tmp_path.glob("events*.jsonl"))
    assert events.count("the rest of the budget is kept for the repro") == 1


def test_stages_of_a_hang_are_compared_only_if_time_is_left_for_its_repro(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug"), log)
    oracle = oracle_of(AlwaysWrong, subject, log)
    case, decision = captured(torch.tanh, torch.ones(3)), Decision("lower.a", "f", "1", 0, True)
    findings = FailureFindings(FailureFound(case, WRONG, 0), Toggles())
    documenting = Documenting(findings, subject, oracle, log)
    hang = Outcome(Kind.HANG, "compile", "compile | hang")
    branches = [Branch(o, Toggles(), case, Fault(o, (decision,))) for o in (hang, WRONG)]
    for seconds, compared in ((200.0, [True, True]), (60.0, [False, True])):
        oracle.spending = Spending(Budget(seconds=seconds))
        assert [documenting._comparable(branch) for branch in branches] == compared


def test_what_is_reserved_for_a_layer_serves_the_repro_of_a_unit() -> None:
    spending = Spending(Budget(seconds=100.0))
    spending.reserved = 200.0
    assert not spending.affordable
    assert spending.left(named=False) < 0.0
    assert spending.left(named=True) > 0.0
    assert spending.affordable


def test_a_culprit_that_the_budget_leaves_uncertain_is_a_suspect(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(EndsInRepeats, subject, log)
    failure = replace(WRONG, decisions=(Decision("lower.a", "f", "1", 0, True),))
    found = FailureFound(captured(torch.tanh, torch.ones(3)), failure, 0)
    report = Investigation(
        FailureFindings(found, Toggles()), subject, oracle, log, minimising=False
    ).run()
    assert (report.status, report.confirmed, report.confidence) == ("budget", False, 0.0)
    assert suspicion(report) == ["suspected, but not confirmed: lower.a"]
    lines = (tmp_path / "repro.py").read_text().splitlines()
    assert "suspect   lower.a" in lines
    assert "It was not seen to pass with the suspect switched off: --off=lower.a" in lines
    assert not any("passes with the culprit" in line for line in lines)


def test_the_layer_of_a_unit_without_which_it_fails_in_a_different_way_is_named(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("inductor", "inductor", run_dir=str(tmp_path)), log)
    oracle = oracle_of(FailsOtherwiseWithout, subject, log)
    failure = replace(WRONG, decisions=(Decision("lower.a", "f", "1", 0, True),))
    found = FailureFound(captured(torch.tanh, torch.ones(3)), failure, 0)
    investigation = Investigation(FailureFindings(found, Toggles()), subject, oracle, log)
    investigation._bisect_whole()
    assert [b.off for b in investigation.findings.branches] == [["lower.a"]]
    investigation._find_layer_instead()
    findings = investigation.findings
    assert [b.off for b in findings.branches] == [["layer.backend"]]
    assert findings.confirmed
    assert findings.notes == [
        "no unit of inductor was confirmed to be at fault; with aot_eager_decomp_partition in "
        "place of inductor it passes, so the layer at fault is layer.backend",
        "suspected, but not confirmed: lower.a",
    ]


def test_a_unit_that_hangs_in_forward_and_backward_is_one_fault(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(HangsInForwardAndBackward, subject, log)
    both = Decision("codegen.a", "f", "1", 0, True), Decision("codegen.a", "g", "2", 1, True)
    found = FailureFound(captured(torch.tanh, torch.ones(3)), replace(HANGS, decisions=both), 0)
    investigation = Investigation(
        FailureFindings(found, Toggles()), subject, oracle, log, minimising=False
    )
    investigation._bisect_whole()
    findings = investigation.findings
    assert [(b.off, b.failure.kind) for b in findings.branches] == [(["codegen.a"], Kind.HANG)]
    assert findings.confirmed
    assert findings.notes == ["codegen.a causes another failure too: hang in backward"]


def test_a_unit_that_decides_with_all_other_units_off_is_named_within_its_layer(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("inductor", "inductor", run_dir=str(tmp_path)), log)
    oracle = oracle_of(DecidedAlone, subject, log)
    failure = replace(WRONG, decisions=(Decision("lower.a", "f", "1", 0, True),))
    case = captured(torch.tanh, torch.ones(3))
    found = FailureFound(case, failure, 0)
    suspected = Branch(failure, Toggles(), case, Fault(failure, failure.decisions), uncertain=True)
    suspected.enabled = Enabled("lower.a")
    findings = FailureFindings(found, Toggles(), [suspected])
    Investigation(findings, subject, oracle, log)._find_layer_instead()
    assert [b.off for b in findings.branches] == [["layer.backend"]]
    notes = findings.notes
    assert notes[-1] == (
        "with all other units off, it fails with lower.a on and passes with lower.a off"
    )
    assert not any("suspected" in note for note in notes)
    report = findings.as_report("confirmed", subject, oracle, tmp_path)
    assert (report.faults[0].within, suspected_units(report)) == (["lower.a"], ["lower.a"])


def test_a_unit_that_is_named_again_ends_the_search_for_further_faults(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(AlwaysWrong, subject, log)
    found = FailureFound(captured(torch.tanh, torch.ones(3)), WRONG, 0)
    units = ["lower.a", "layer.b", "lower.a", "lower.c"]
    told = Told(FailureFindings(found, Toggles()), subject, oracle, log, units=units)
    told._fault_by_fault()
    assert [b.off for b in told.findings.branches] == [["lower.a"], ["layer.b"]]
    assert told.units == ["lower.c"]
    assert told.findings.notes == ["it fails with lower.a off too, and lower.a is named again"]
    assert not told.findings.confirmed


def test_a_unit_that_is_at_fault_in_a_part_of_the_graph_only_is_no_culprit(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(FailsThroughOneUnit, subject, log)
    found = FailureFound(captured(torch.tanh, torch.ones(3)), WRONG, 0)
    told = Told(
        FailureFindings(found, Toggles()), subject, oracle, log, units=["lower.a", "lower.b"]
    )
    told._fault_by_fault()
    assert [b.off for b in told.findings.branches] == [["lower.b"]]
    assert told.findings.confirmed
    assert told.findings.notes == [
        "with lower.a on, only a part of the graph fails; the whole graph passes"
    ]


class ToldWithPartners(Told):
    """The culprit of the minimised case has partners."""

    def _bisect(self, branch: Branch[Case]) -> None:
        super()._bisect(branch)
        assert branch.fault is not None
        decisions = tuple(Decision(u, "", "", 0, True) for u in ("config.b", branch.fault.unit))
        branch.fault = replace(branch.fault, failure=replace(WRONG, decisions=decisions))
        branch.enabled = Enabled(branch.fault.unit, ("lower.c", "config.b"), ("decompose.d",))


def test_the_partner_without_which_the_whole_graph_passes_is_the_culprit(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(FailsThroughAPartner, subject, log)
    found = FailureFound(captured(torch.tanh, torch.ones(3)), WRONG, 0)
    findings = FailureFindings(found, Toggles())
    told = ToldWithPartners(findings, subject, oracle, log, units=["lower.a", "lower.never"])
    told._fault_by_fault()
    (branch,) = findings.branches
    assert (branch.off, findings.confirmed) == (["config.b"], True)
    assert branch.only == ["decompose.d", "lower.c", "lower.a", "config.b"]
    assert told.units == ["lower.never"]


@torch.library.custom_op("registered_wrongly::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_no_second_fault_is_sought_behind_an_operator_that_is_registered_wrongly(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    subject = GraphSubject(Backend("tcdebug", "tcdebug", run_dir=str(tmp_path)), log)
    oracle = oracle_of(AlwaysWrong, subject, log)
    found = FailureFound(captured(lambda *args: doubled(*args) + 1, torch.ones(3)), WRONG, 0)
    told = Told(
        FailureFindings(found, Toggles()), subject, oracle, log, units=["layer.a", "lower.b"]
    )
    told._fault_by_fault()
    assert told.units == ["lower.b"]
    (branch,) = told.findings.branches
    assert "registered_wrongly.doubled.default is registered wrongly" in branch.misregistered[0]
    assert told.findings.layer.layer == "layer.script"
    assert told.findings.notes == ["it passes with layer.a off, which trusts the registration"]


def test_donation_is_the_culprit_if_the_whole_passes_only_without_it() -> None:
    taken = [
        Decision(unit, "subject", "", 0, True)
        for unit in ("partition.cse", "partition.donate", "fuse.vertical", "memory.reuse")
    ]
    failure = replace(WRONG, decisions=taken)
    branch = Branch(WRONG, Toggles(), captured(torch.tanh, torch.ones(3)))
    branch.fault = Fault(failure, (taken[-1],))
    asked: list[list[str]] = []

    def ask(off: Sequence[str]) -> Outcome:
        asked.append(list(off))
        return Outcome(Kind.OK) if "partition.donate" in off else WRONG

    assert branch.whole_without(ask).kind is Kind.OK
    assert branch.off == ["partition.donate"]
    assert asked == [["memory.reuse"], ["partition.donate"]]


@pytest.mark.parametrize(
    ("unit", "kind", "phase", "raises"),
    [
        ("decompose.a", Kind.EXCEPTION, "forward", True),
        ("lower.a", Kind.CRASH, "backward", True),
        ("decompose.a", Kind.WRONG, "backward", False),
        ("joint.a", Kind.EXCEPTION, "forward", False),
    ],
)
def test_an_operator_that_raises_in_place_of_a_wrong_one_is_no_second_fault(
    unit: str, kind: Kind, phase: str, raises: bool
) -> None:
    wrong = replace(WRONG, phase="backward", decisions=[Decision(unit, "subject", "", 0, True)])
    branch = Branch(wrong, Toggles(), captured(torch.tanh, torch.ones(3)))
    branch.fault = Fault(wrong, wrong.decisions)
    assert branch.raises_instead(Outcome(kind, phase)) == raises


def test_an_exception_in_backward_may_be_a_second_fault_if_forward_is_wrong() -> None:
    wrong = replace(WRONG, decisions=[Decision("lower.a", "subject", "", 0, True)])
    branch = Branch(wrong, Toggles(), captured(torch.tanh, torch.ones(3)))
    branch.fault = Fault(wrong, wrong.decisions)
    assert not branch.raises_instead(Outcome(Kind.EXCEPTION, "backward"))
