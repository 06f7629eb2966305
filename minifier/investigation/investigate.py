"""Leads from a failing candidate to culprits and repros: minimise, bisect, write, verify."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.autograd_units import find_autograd_units
from tcdebug.minifier.bisection.bisect import (
    MOST_FAULTS,
    Ask,
    Fault,
    Verdict,
    bisect,
    each_matters,
)
from tcdebug.minifier.bisection.certainty import CertainVerdict
from tcdebug.minifier.bisection.enabled import fewest_enabled
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.layer_names import SCRIPT
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.investigation.reporting import FailureFound, InvestigationState
from tcdebug.minifier.investigation.reproduction import Reproduction
from tcdebug.minifier.investigation.stages import find_autograd_stage, find_stage
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.repros.sanitizer import kernel_at_fault
from tcdebug.minifier.search.reducing import Interesting, reduce_ahead
from tcdebug.minifier.subjects.subject import Subject
from tcdebug.minifier.targets.ladder import AUTOGRAD


@dataclass
class Investigation(Generic[CandidateType]):
    """The investigation of one failure. It holds what is known so far at any time."""

    found: FailureFound[CandidateType]
    subject: Subject[CandidateType]
    oracle: Oracle[CandidateType]
    log: EventLog
    base: Toggles
    bisecting: bool = True
    minimising: bool = True
    wanted_confidence: float = 0.99
    save: Callable[[Report], None] = lambda report: None
    """Saves what is known so far, in case this process is ended."""
    confidence: float = 1.0
    """The confidence that no pass on which a verdict rests was luck."""
    confirmed: bool = False
    """Whether the whole subject passes without the faults found, and each of them is needed."""
    layer: LayerFinding = field(default_factory=LayerFinding)
    branches: list[Branch[CandidateType]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Report:
        """Run all steps in order. If the budget is used up, stop with the best result so far."""
        in_budget = True
        try:
            if self._slow_to_fail:
                self._attempt("the search in the whole", self._whole)
            if self.minimising and not self.branches:
                self._attempt("the search in the minimised graph", self._fault_by_fault)
            if self.bisecting and not (self.confirmed or self._slow_to_fail):
                self._attempt("the search in the whole", self._whole)
            if not (self.confirmed or self.oracle.spending.affordable):
                raise BudgetUsed
        except BudgetUsed:
            in_budget = False
            self.notes.append("the budget is used up; this is the best result so far")
        if not self.branches:
            self.branches = [Branch(self.found.outcome, self.base, self.found.candidate)]
        self.save(self._report("budget"))
        for number, branch in enumerate(self.branches, 1):
            in_budget = self._document(branch, number) and in_budget
        return self._report(self._status(in_budget))

    @property
    def _slow_to_fail(self) -> bool:
        """Return whether failing runs take long. Minimising has many of them, bisecting has few."""
        return self.bisecting and self.found.outcome.kind in (Kind.HANG, Kind.SLOW)

    def _attempt(self, what: str, step: Callable[[], None]) -> None:
        """Run a step. An exception ends the step, not the investigation. Raises BudgetUsed."""
        try:
            step()
        except BudgetUsed:
            raise
        except Exception as problem:
            self.log.emit(Fallback(f"{what} was abandoned", traceback.format_exc()))
            text = f"{type(problem).__name__}: {problem}".splitlines()[0]
            self.notes.append(f"{what} was abandoned because of an error in tcdebug: {text}")

    def _status(self, in_budget: bool) -> str:
        if not in_budget:
            return "budget"
        if not self.bisecting:
            return "minimized" if self.branches[0].fails else "unconfirmed"
        return "confirmed" if all(b.confirmed for b in self.branches) else "unconfirmed"

    # -- minimise, then bisect what remains -------------------------------------------------

    def _fault_by_fault(self) -> None:
        """Minimise and bisect, switch the culprit off in the whole graph, and repeat."""
        toggles, left = self.base, self.found.outcome
        while left.failed and len(self.branches) < MOST_FAULTS:
            branch = Branch(left, toggles, self.found.candidate)
            self.branches.append(branch)
            self.oracle.hunted = left
            self._attempt("minimising", partial(self._minimise, branch))
            self.save(self._report("budget"))
            if not self.bisecting:
                return
            self._bisect(branch)
            self.save(self._report("budget"))
            if branch.fault is None or self._named_before(branch.fault):
                return
            if self._brought_about(branch):
                return
            toggles = toggles.without(off=branch.off)
            purpose = f"the whole graph without {', '.join(branch.off)}"
            left = self.oracle.ask(self.found.candidate, toggles, purpose)
            if left.failed:
                self._check_operators(branch)
            if branch.misregistered:
                return  # that explains other failures too
        faults = [fault for branch in self.branches for fault in branch.faults]
        whole = [replace(f, whole_unit=True) for f in faults]
        asked = CandidateOracle(self.oracle, self.found.candidate)
        self.confirmed = left.kind is Kind.OK and asked.searched(
            lambda ask: each_matters(ask, self.base, whole)
        )

    def _named_before(self, fault: Fault) -> bool:
        """Return whether a unit that is already off is named again, which ends the search."""
        before = [b.fault.unit for b in self.branches[:-1] if b.fault is not None]
        if fault.unit not in before:
            return False
        self.branches.pop()
        self.notes.append(f"it fails with {fault.unit} off too, and {fault.unit} is named again")
        return True

    def _brought_about(self, branch: Branch[CandidateType]) -> bool:
        """Return whether switching units off caused a failure: the small candidate passes as is."""
        if branch.base == self.base:
            return False
        alone = CandidateOracle(self.oracle, branch.best).ask(self.base, "by itself")
        if alone.kind is not Kind.OK:
            return False
        self.branches.remove(branch)
        self.notes.append(
            f"with {', '.join(self.branches[-1].off)} off the graph fails in a different way, but "
            f"its minimised form passes with nothing off: {branch.failure.signature}"
        )
        return True

    def _minimise(self, branch: Branch[CandidateType]) -> None:
        """Find the smallest candidate with the same failure and, once known, the same culprit."""

        def ask(question: Question[CandidateType]) -> Outcome:
            outcome = self.oracle.answer(question)
            if outcome.kind is Kind.OK and question.toggles == branch.base:
                branch.passing.append(question.candidate)
            return outcome

        def interesting(
            ask: Callable[[Question[CandidateType]], Outcome],
        ) -> Interesting[CandidateType]:
            def fails(candidate: CandidateType, purpose: str) -> bool:
                failure = ask(Question(candidate, branch.base, purpose))
                if not branch.failure.still_shown_by(failure):
                    return False
                if not branch.off:
                    return True
                toggles = branch.base.without(off=branch.off)
                outcome = ask(Question(candidate, toggles, f"{purpose}, culprit off"))
                return outcome.kind is Kind.OK

            return fails

        reducer = self.subject.reducer(branch.best, self.log)
        if reducer is None:
            return
        try:
            reduce_ahead(reducer, ask, self.oracle, interesting)
        finally:
            branch.best = reducer.best

    def _bisect(self, branch: Branch[CandidateType]) -> None:
        """Find the unit at fault in the small candidate, and the other units it needs."""
        asked = CandidateOracle(self.oracle, branch.best)
        if branch.base != self.base:
            alone = asked.ask(self.base, "by itself")
            branch.base = self.base if branch.failure.same_bug(alone) else branch.base
        failure = asked.ask(branch.base, "the smallest graph")
        if not failure.decisions:
            self._find_layer(branch, asked, failure)
            return
        sure = self._surely(asked, failure, branch.base)
        if sure.verdict.faults:
            branch.fault = sure.verdict.faults[0]
            branch.alternatives = sure.verdict.alternatives() if sure.verdict.confirmed else ()
            if sure.rate.failed < sure.rate.runs:
                self._minimise(branch)  # with as many repeats as needed
                asked = CandidateOracle(self.oracle, branch.best)
                failure = asked.ask(branch.base, "the smallest graph")
            self._find_enabled(branch, branch.fault.unit, asked, failure)
        elif sure.verdict.core:
            self._find_layer(branch, asked, failure)

    def _find_enabled(
        self,
        branch: Branch[CandidateType],
        unit: str,
        asked: CandidateOracle[CandidateType],
        failure: Outcome,
    ) -> None:
        """Find the other units that the culprit needs, in half of the budget that is left."""
        spending = self.oracle.spending
        try:
            with spending.reserving(spending.seconds_left / 2):
                branch.enabled = asked.searched(
                    lambda ask: fewest_enabled(ask, failure, unit, branch.base)
                )
        except BudgetUsed:
            if not spending.affordable:
                raise
            why = "the rest of the budget is kept for confirming the culprit"
            self.log.emit(Fallback(f"the units that {unit} needs are not known", why))

    def _surely(
        self, asked: CandidateOracle[CandidateType], failure: Outcome, base: Toggles
    ) -> CertainVerdict:
        """Bisect a candidate until the verdict is certain, or name nothing."""

        def search(ask: Ask) -> Verdict:
            return asked.searched(
                lambda ask: bisect(ask, failure, base, self.log),
                lambda ask: bisect(ask, failure, base, EventLog(None)),
                ask,
            )

        sure = asked.certain(failure, base, search, self.wanted_confidence)
        self.confidence = min(self.confidence, sure.confidence)
        self.notes += sure.notes(self.wanted_confidence)
        return sure

    def _find_layer(
        self, branch: Branch[CandidateType], asked: CandidateOracle[CandidateType], failure: Outcome
    ) -> None:
        """Find the layer of torch at fault if no unit is."""
        self.layer = self.subject.find_layer(asked, branch.base, failure, self.wanted_confidence)
        self.notes += self.layer.notes
        if self.layer.switch:
            decision = Decision(self.layer.switch, self.subject.backend, "", 0, True)
            branch.fault = Fault(failure, (decision,), whole_unit=True)
            branch.is_layer = True
        if self.layer.switch == AUTOGRAD:
            self._within_autograd(branch, asked, failure)

    def _within_autograd(
        self, branch: Branch[CandidateType], asked: CandidateOracle[CandidateType], failure: Outcome
    ) -> None:
        """Replace the layer by the units of AOTAutograd at fault."""

        def bisected(failure: Outcome, toggles: Toggles) -> Verdict:
            self.oracle.hunted = failure
            return self._surely(asked, failure, toggles).verdict

        hunted = self.oracle.hunted
        asked.need(1)  # the search itself decides what to repeat
        try:
            found = find_autograd_units(asked, branch.base, failure, bisected)
        finally:
            self.oracle.hunted = hunted
        self.notes += found.notes
        if found.faults:
            branch.fault, *others = found.faults
            branch.alternatives = tuple(others)
            branch.is_layer = False

    # -- bisect the whole, then minimise ----------------------------------------------------

    def _whole(self) -> None:
        """Bisect the whole candidate, if minimising failed to settle it or was not wanted."""
        failure = self.oracle.hunted = self.found.outcome
        asked = CandidateOracle(self.oracle, self.found.candidate)
        if not failure.decisions:
            if not self.minimising:
                self._whole_layer(asked, failure)
            return
        verdict = self._surely(asked, failure, self.base).verdict
        if verdict.core and not self.minimising:
            self._whole_layer(asked, failure)
        if not verdict.faults or (self.branches and not verdict.confirmed):
            return
        self.confirmed = verdict.confirmed
        self.branches = []
        for fault in verdict.faults:
            others = [f.unit for f in verdict.faults if f.unit != fault.unit]
            base = self.base.without(off=others)
            branch = Branch(fault.failure, base, self.found.candidate, fault)
            self.branches.append(branch)
            if self.minimising:
                self._minimise(branch)

    def _whole_layer(self, asked: CandidateOracle[CandidateType], failure: Outcome) -> None:
        """Find the layer at fault for a candidate that is not minimised."""
        branch = Branch(failure, self.base, self.found.candidate)
        self.branches = [branch]
        self._find_layer(branch, asked, failure)
        self.confirmed = branch.fault is not None and not self.layer.in_doubt

    # -- stages, repro, report --------------------------------------------------------------

    def _document(self, branch: Branch[CandidateType], number: int) -> bool:
        """Compare the stages of a fault and write its repro. Return False if the budget ended."""
        in_budget = self.oracle.spending.left(named=self.confirmed and not branch.is_layer) > 0
        if in_budget:
            self._check_operators(branch)
        if in_budget and self._comparable(branch):
            try:
                self._attempt("the comparison of stages", lambda: self._stages(branch, number))
            except BudgetUsed:
                in_budget = False
                self.notes.append("the budget is used up; the stages were not compared")
        name = "repro.py" if number == 1 else f"repro_{number}.py"
        self._attempt("writing the repro", lambda: self._repro(branch, self._folder / name))
        return in_budget and (branch.confirmed or self.oracle.spending.seconds_left > 0)

    @property
    def _folder(self) -> Path:
        assert self.log.folder is not None
        return self.log.folder

    def _check_operators(self, branch: Branch[CandidateType]) -> None:
        if not branch.misregistered:
            self._attempt("checking custom operators", lambda: self._custom_operators(branch))

    def _custom_operators(self, branch: Branch[CandidateType]) -> None:
        """Blame wrongly registered custom operators, if any, instead of a unit or layer."""
        branch.misregistered = self.subject.misregistered(branch.best)
        if branch.misregistered:
            self.notes = [note for note in self.notes if note not in self.layer.notes]
            self.layer = replace(self.layer, layer=SCRIPT)
            if branch.off:
                trusting = ", ".join(branch.off)
                self.notes.append(f"it passes with {trusting} off, which trusts the registration")

    def _comparable(self, branch: Branch[CandidateType]) -> bool:
        """Return whether stages can be compared: with a unit off, or by AOTAutograd's values."""
        if not branch.off or branch.misregistered or not self.subject.keeps_stages:
            return False
        if branch.failure.compiles_slowly:
            return False  # it would compile even longer while the texts are written
        wrong_in_autograd = self.layer.switch == AUTOGRAD and branch.failure.kind is Kind.WRONG
        return not branch.is_layer or wrong_in_autograd

    def _stages(self, branch: Branch[CandidateType], number: int) -> None:
        """Find where in the pipeline the fault appears, with only the units on that it needs."""
        fails = branch.base.allowing(branch.only) if branch.only else branch.base
        folder = self._folder / "stages" / str(number)
        if branch.is_layer:
            found = find_autograd_stage(self.oracle, branch.best, branch.base, folder)
            if found is not None:
                branch.stages, what = found
                self.notes.append(f"the values first differ in {branch.stages.stage}: {what}")
            return
        branch.stages = find_stage(self.oracle, branch.best, fails, branch.off, folder)
        if branch.stages is None:
            self.notes.append("the stages were not compared: with the culprit off it did not pass")

    def _repro(self, branch: Branch[CandidateType], path: Path) -> None:
        note = Reproduction(self.subject, self.oracle, self.log).write(branch, path)
        self.notes += [note] * bool(note)
        if branch.fails:
            kernel = kernel_at_fault(path, branch.failure, self.oracle.spending.seconds_left)
            self.notes += [kernel] * bool(kernel)
        sure = self.confirmed and not (branch.is_layer and self.layer.in_doubt)
        branch.confirmed = branch.fails and branch.passes and sure

    def _report(self, status: str) -> Report:
        """Report what is known so far."""
        branches = self.branches or [Branch(self.found.outcome, self.base, self.found.candidate)]
        findings = InvestigationState(
            self.found, self.subject, branches, self.layer, self.confidence, self.notes,
            self.oracle.others.scripts,
        )  # fmt: skip
        return findings.as_report(status, self.oracle, self._folder)
