"""Investigates a failure: minimises the failing candidate, bisects it, and writes a repro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection import any_kernel
from tcdebug.minifier.bisection.autograd_units import TRUSTS_TRACES, find_units_of_layer
from tcdebug.minifier.bisection.bisect import MOST_FAULTS, Ask, Fault, Verdict, bisect
from tcdebug.minifier.bisection.certainty import CertainVerdict
from tcdebug.minifier.bisection.enabled import MOST_NEEDED, Unlisted, fewest_enabled
from tcdebug.minifier.bisection.fake_kernels import described, find_fake_kernels
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.branch import (
    Branch,
    Minimising,
    decides_alone,
    leaving_half,
    leaving_repro,
)
from tcdebug.minifier.investigation.documenting import Documenting
from tcdebug.minifier.investigation.findings import FailureFindings
from tcdebug.minifier.investigation.report import Report, suspected, suspected_together
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.subjects.subject import Subject

LISTING = 60.0
"""The seconds for which the units that a culprit needs are always searched for."""


@dataclass
class Investigation(Generic[CandidateType]):
    """The investigation of one failure. `findings` holds what is known at any time."""

    findings: FailureFindings[CandidateType]
    subject: Subject[CandidateType]
    oracle: Oracle[CandidateType]
    log: EventLog
    bisecting: bool = True
    minimising: bool = True
    wanted_confidence: float = 0.99
    save: Callable[[Report], None] = lambda report: None
    """Saves what is known so far, in case this process is ended."""

    def run(self) -> Report:
        """Run all steps in order. If the budget is used up, stop with the best result so far."""
        in_budget = True
        try:
            if self._slow_to_fail:
                self._attempt("the search without minimising", self._bisect_whole)
            if self.minimising and not self.findings.branches:
                self._attempt("the search in minimised graphs", self._fault_by_fault)
            if self.bisecting and self._whole_says_more:
                self._attempt("the search without minimising", self._bisect_whole)
            if self.bisecting and not self.findings.confirmed:
                self._attempt("the search for the layer", self._find_layer_instead)
            if not (self.findings.confirmed or self.oracle.spending.affordable):
                raise BudgetUsed
        except BudgetUsed:
            in_budget = False
            self.findings.notes.append("the budget is used up; this is the best result so far")
        if not self.findings.branches:
            found = self.findings.found
            self.findings.branches = [Branch(found.outcome, self.findings.base, found.candidate)]
        self.save(self._report("budget"))
        for number, branch in enumerate(self.findings.branches, 1):
            in_budget = self._documenting.document(branch, number) and in_budget
        return self._report(
            self._status(self.findings.suspicion_holds(self.oracle, self.log) and in_budget)
        )

    @property
    def _slow_to_fail(self) -> bool:
        """Return whether failing runs take long. Minimising has many of them, bisecting has few."""
        return self.bisecting and self.findings.found.outcome.kind in (Kind.HANG, Kind.SLOW)

    @property
    def _whole_says_more(self) -> bool:
        """Return whether the culprit is open and a search in the whole may find it.

        A complete search in a minimised form with as many nodes had the same decisions. A form that
        fails less often than the whole may have been taken for a smaller one by luck.
        """
        if self.findings.confirmed or self._slow_to_fail:
            return False
        whole = self.findings.found.candidate.size
        branches = self.findings.branches
        return not branches or not branches[0].uncertain or branches[0].best.size < whole

    @cached_property
    def _documenting(self) -> Documenting[CandidateType]:
        return Documenting(self.findings, self.subject, self.oracle, self.log)

    def _attempt(self, what: str, step: Callable[[], None]) -> None:
        """Run a step. An exception ends the step, not the investigation. Raises BudgetUsed."""
        self.findings.attempt(what, step, self.log)

    def _status(self, in_budget: bool) -> str:
        if not in_budget:
            return "budget"
        if not self.bisecting:
            return "minimized" if self.findings.branches[0].fails else "unconfirmed"
        return "confirmed" if all(b.confirmed for b in self.findings.branches) else "unconfirmed"

    # -- minimise, then bisect what remains -------------------------------------------------

    def _fault_by_fault(self) -> None:
        """Minimise and bisect, switch the culprit off in the whole graph, and repeat."""
        left = self.findings.found.outcome
        while left.failed and len(self.findings.branches) < MOST_FAULTS:
            toggles = self._without(self.findings.branches)
            branch = Branch(left, toggles, self.findings.found.candidate)
            self.findings.branches.append(branch)
            self.oracle.failure = left
            self._attempt("minimising", partial(self._minimise_first, branch))
            self.save(self._report("budget"))
            if not self.bisecting:
                return
            self._bisect(branch)
            self.save(self._report("budget"))
            if branch.fault is None or branch.uncertain or self.findings.repeat(branch.fault):
                return
            if self._caused_by_toggles(branch):
                return
            left = branch.whole_without(lambda off: self.oracle.answer_unhurried(self._whole(off)))
            if left.failed:
                self._documenting.check_operators(branch)
            if branch.misregistered or self.findings.raises_instead(branch, left):
                return  # that explains other failures too
        if left.kind is Kind.OK:
            self.findings.confirm(CandidateOracle(self.oracle, self.findings.found.candidate))

    def _without(self, branches: Sequence[Branch[CandidateType]]) -> Toggles:
        """Return the toggles that switch off the faults of some branches."""
        return self.findings.base.without(off=[unit for b in branches for unit in b.off])

    def _whole(self, off: Sequence[str]) -> Question[CandidateType]:
        """Return the question of the whole without `off`, and without the faults found before."""
        toggles = self._without(self.findings.branches[:-1]).without(off=off)
        purpose = f"the whole graph without {', '.join(off)}"
        return Question(self.findings.found.candidate, toggles, purpose)

    def _caused_by_toggles(self, branch: Branch[CandidateType]) -> bool:
        """Return whether switching units off caused a failure: its smallest graph passes as is."""
        if branch.base == self.findings.base:
            return False
        alone = CandidateOracle(self.oracle, branch.best).ask(self.findings.base, "by itself")
        if alone.kind is not Kind.OK:
            return False
        self.findings.branches.remove(branch)
        off = ", ".join(self.findings.branches[-1].off)
        self.findings.notes.append(
            f"with {off} off the graph fails in a different way, but its minimised form passes "
            f"with nothing off: {branch.failure.signature}"
        )
        return True

    def _minimise(self, branch: Branch[CandidateType]) -> None:
        """Find the smallest candidate with the same failure and, once known, the same culprit."""
        Minimising(self.subject, self.oracle, self.log, self._attempt).run(branch)

    def _minimise_first(self, branch: Branch[CandidateType]) -> None:
        """Minimise before the culprit is known, and leave half of the time to search for it."""
        if self.bisecting:
            leaving_half(self.oracle, self.log, partial(self._minimise, branch))
        else:
            self._minimise(branch)

    def _bisect(self, branch: Branch[CandidateType]) -> None:
        """Find the unit at fault in the small candidate, and the other units it needs."""
        oracle = CandidateOracle(self.oracle, branch.best)
        if branch.base != self.findings.base:
            alone = oracle.ask(self.findings.base, "by itself")
            branch.base = self.findings.base if branch.failure.same_bug(alone) else branch.base
        failure = oracle.ask(branch.base, "the smallest graph")
        if not failure.decisions:
            self._find_layer(branch, oracle, failure)
            return
        sure = self._certain_verdict(oracle, failure, branch.base)
        if any_kernel.fails_instead(oracle.ask, failure, branch.base, sure.verdict):
            self._find_layer(branch, oracle, failure)
            self.findings.notes.append(any_kernel.NOTE)
        elif sure.verdict.faults:
            branch.fault = sure.verdict.faults[0]
            branch.uncertain = sure.uncertain
            branch.alternatives = sure.verdict.alternatives() if sure.verdict.confirmed else ()
            if sure.rate.failed < sure.rate.runs:
                self._minimise(branch)  # with as many repeats as needed
                oracle = CandidateOracle(self.oracle, branch.best)
                failure = oracle.ask(branch.base, "the smallest graph")
            self._find_enabled(branch, branch.fault.unit, oracle, failure)
        elif sure.verdict.core:
            self._find_layer(branch, oracle, failure)

    def _find_enabled(
        self,
        branch: Branch[CandidateType],
        unit: str,
        oracle: CandidateOracle[CandidateType],
        failure: Outcome,
    ) -> None:
        """Find the other units that the culprit needs, in half of the time spent so far."""
        spending = self.oracle.spending
        try:
            with spending.at_most(max(LISTING, spending.seconds / 2)):
                found = oracle.searched(
                    lambda ask: fewest_enabled(ask, failure, unit, branch.base),
                    then=[] if branch.uncertain else [self._whole(branch.off)],
                )
            if isinstance(found, Unlisted):
                why = f"it needs more than {MOST_NEEDED} of them"
                self.log.emit(Fallback(f"the units that {unit} needs are not listed", why))
            else:
                branch.enabled = found
        except BudgetUsed:
            if not spending.affordable:
                raise
            why = "they were not found in the time that is kept for them"
            self.log.emit(Fallback(f"the units that {unit} needs are not known", why))

    def _certain_verdict(
        self, oracle: CandidateOracle[CandidateType], failure: Outcome, base: Toggles
    ) -> CertainVerdict:
        """Bisect a candidate until the verdict is certain, or name nothing."""

        def search(ask: Ask) -> Verdict:
            return oracle.searched(
                lambda ask: bisect(ask, failure, base, self.log),
                lambda ask: bisect(ask, failure, base, EventLog(None)),
                ask,
            )

        sure = oracle.certain(failure, base, search, self.wanted_confidence)
        self.findings.confidence = min(self.findings.confidence, sure.confidence)
        self.findings.notes += sure.notes(self.wanted_confidence)
        return sure

    def _find_layer(
        self,
        branch: Branch[CandidateType],
        oracle: CandidateOracle[CandidateType],
        failure: Outcome,
    ) -> None:
        """Find the layer of torch at fault if no unit is."""
        self.findings.layer = self.subject.find_layer(
            oracle, branch.base, failure, self.wanted_confidence
        )
        if self.findings.layer.switch:
            decision = self.findings.layer.decision(self.subject.backend)
            branch.fault = Fault(failure, (decision,), whole_unit=True)
            branch.is_layer = True
        place = len(self.findings.notes)
        try:
            if self.findings.layer.switch in TRUSTS_TRACES:
                self._find_units_of_layer(branch, oracle, failure)
        finally:  # units of AOTAutograd may settle a doubt that the notes mention
            self.findings.notes[place:place] = self.findings.layer.notes

    def _find_units_of_layer(
        self,
        branch: Branch[CandidateType],
        oracle: CandidateOracle[CandidateType],
        failure: Outcome,
    ) -> None:
        """Replace the layer by the units of AOTAutograd, or the fake kernels, at fault."""

        def bisected(failure: Outcome, toggles: Toggles) -> Verdict:
            self.oracle.failure = failure
            return self._certain_verdict(oracle, failure, toggles).verdict

        searched_for, layer = self.oracle.failure, self.findings.layer.switch
        try:
            found = find_units_of_layer(
                layer, oracle, branch.base, failure, bisected, self.wanted_confidence
            )
        finally:
            self.oracle.failure = searched_for
        self.findings.notes += found.notes
        if found.faults:
            branch.fault, *others = found.faults
            branch.alternatives = tuple(others)
            branch.is_layer = False
            self.findings.layer = self.findings.layer.settled()

    # -- bisect the whole, then minimise ----------------------------------------------------

    def _bisect_whole(self) -> None:
        """Bisect the whole candidate, if minimising failed to settle it or was not wanted."""
        failure = self.oracle.failure = self.findings.found.outcome
        oracle = CandidateOracle(self.oracle, self.findings.found.candidate)
        if not failure.decisions:
            if not self.minimising:
                self._find_whole_layer(oracle, failure)
            return
        if not self.minimising and self._is_named_at_once(oracle, failure):
            return
        sure = self._certain_verdict(oracle, failure, self.findings.base)
        verdict = sure.verdict
        if not self.minimising and (verdict.core or verdict.every_lowering):
            self._find_whole_layer(oracle, failure)
            self.findings.notes += suspected_together(verdict.units())
            return
        if not verdict.faults or (self.findings.branches and not verdict.confirmed):
            return
        self.findings.confirmed = verdict.confirmed
        self.findings.branches = []
        same = verdict.alternatives() if verdict.confirmed else ()
        for fault in (f for f in verdict.faults if f not in same):
            if verdict.confirmed and self.findings.names(fault.unit):
                what = f"{fault.failure.kind.value} in {fault.failure.phase}"
                self.findings.notes.append(f"{fault.unit} causes another failure too: {what}")
                continue  # whole units are off in smaller graphs, so the first would hide it
            alternatives = same if fault is verdict.faults[0] else ()
            named = {fault.unit, *(f.unit for f in alternatives)}
            others = [f.unit for f in verdict.faults if f.unit not in named]
            base = self.findings.base.without(off=others)
            branch = Branch(
                fault.failure, base, self.findings.found.candidate, fault, alternatives=alternatives
            )
            branch.uncertain = sure.uncertain
            self.findings.branches.append(branch)
            if self.minimising:
                leaving_repro(self.oracle, self.log, branch, partial(self._minimise, branch))

    def _name_fake_kernels(self, oracle: CandidateOracle[CandidateType], failure: Outcome) -> bool:
        """Name wrong fake kernels, which one run shows, before many runs search all units."""
        base, whole = self.findings.base, self.findings.found.candidate
        wrong = find_fake_kernels(oracle, base, failure, self.wanted_confidence)
        if wrong:
            branch = Branch(failure, base, whole, wrong[0], alternatives=wrong[1:])
            self.findings.branches = [branch]
            self.findings.notes += map(described, wrong)
            self.findings.confirmed = True
        return bool(wrong)

    def _is_named_at_once(self, oracle: CandidateOracle[CandidateType], failure: Outcome) -> bool:
        """Return whether one run names wrong fake kernels, or kernels that only copy fail too."""
        if self._name_fake_kernels(oracle, failure):
            return True
        if not any_kernel.fails(oracle.ask, failure, self.findings.base):
            return False
        self._find_whole_layer(oracle, failure)
        self.findings.notes.append(any_kernel.NOTE)
        return True

    def _find_whole_layer(self, oracle: CandidateOracle[CandidateType], failure: Outcome) -> None:
        """Find the layer at fault for a candidate that is not minimised."""
        branch = Branch(failure, self.findings.base, self.findings.found.candidate)
        self.findings.branches = [branch]
        self._find_layer(branch, oracle, failure)
        self.findings.confirmed = branch.fault is not None and not self.findings.layer.in_doubt

    # -- a layer, if no unit is certain -----------------------------------------------------

    def _find_layer_instead(self) -> None:
        """Name the layer at fault if the only unit found is uncertain, or none was found.

        The unit stays in the report as a suspect.
        """
        findings = self.findings
        if len(findings.branches) != 1 or findings.layer.rungs:
            return
        found = findings.branches[0]
        if found.misregistered or not (found.uncertain or found.fault is None):
            return
        best = found.best if found.fault else findings.found.candidate
        branch = Branch(found.failure, findings.base, best, passing=found.passing)
        self.oracle.failure, oracle = branch.failure, CandidateOracle(self.oracle, branch.best)
        failure = oracle.ask(branch.base, "the smallest graph")
        if not branch.failure.same_bug(failure):
            return
        self._find_layer(branch, oracle, failure)
        if branch.fault is None:
            return
        if self.oracle.answer_unhurried(self._whole(branch.off)).kind is not Kind.OK:
            return
        findings.branches = [branch]
        findings.confirmed = not findings.layer.in_doubt
        deciding = decides_alone(found, CandidateOracle(self.oracle, found.best))
        if found.off and deciding:
            branch.within, branch.enabled = tuple(found.off), found.enabled
            findings.notes += deciding
        else:
            findings.notes += suspected(found.off)

    def _report(self, status: str) -> Report:
        """Report what is known so far."""
        assert self.log.folder is not None
        return self.findings.as_report(status, self.subject, self.oracle, self.log.folder)
