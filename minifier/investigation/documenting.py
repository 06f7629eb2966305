"""Documents a fault: checks custom operators, compares stages, and writes and runs the repro."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import belongs
from tcdebug.minifier.cases.layer_names import AUTOGRAD, FAKE_KERNELS, SCRIPT
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.branch import HANGING_REPRO, Branch
from tcdebug.minifier.investigation.findings import FailureFindings
from tcdebug.minifier.investigation.reproduction import Reproduction
from tcdebug.minifier.investigation.stages import find_autograd_stage, find_stage
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.repros.sanitizer import kernel_at_fault
from tcdebug.minifier.subjects.subject import Subject


@dataclass(frozen=True)
class Documenting(Generic[CandidateType]):
    """Adds to the findings what a report shows of each fault besides its culprits."""

    findings: FailureFindings[CandidateType]
    subject: Subject[CandidateType]
    oracle: Oracle[CandidateType]
    log: EventLog

    def document(self, branch: Branch[CandidateType], number: int) -> bool:
        """Compare the stages of a fault and write its repro. Return False if the budget ended."""
        in_budget = (
            self.oracle.spending.left(named=self.findings.confirmed and not branch.is_layer) > 0
        )
        if in_budget:
            self.check_operators(branch)
            self._attempt("explaining the failure", lambda: self._explain(branch))
        if in_budget and self._comparable(branch):
            try:
                self._attempt("the comparison of stages", lambda: self._stages(branch, number))
            except BudgetUsed:
                in_budget = False
                self.findings.notes.append("the budget is used up; the stages were not compared")
        name = "repro.py" if number == 1 else f"repro_{number}.py"
        self._attempt("writing the repro", lambda: self._repro(branch, self._folder / name))
        return in_budget and (branch.confirmed or self.oracle.spending.seconds_left > 0)

    def check_operators(self, branch: Branch[CandidateType]) -> None:
        """Check the registration of custom operators in the smallest candidate of a fault."""
        if not branch.misregistered:
            self._attempt("checking custom operators", lambda: self._custom_operators(branch))

    def _explain(self, branch: Branch[CandidateType]) -> None:
        """Note the known reasons that explain the failure."""
        try:
            self.findings.notes += [
                known.note
                for known in self.subject.explanations(branch.best, branch.failure)
                if self.oracle.ask(known.candidate, branch.base, known.purpose).kind is Kind.OK
            ]
        except BudgetUsed:
            return

    def _custom_operators(self, branch: Branch[CandidateType]) -> None:
        """Name wrongly registered custom operators, if any, instead of a unit or layer."""
        branch.misregistered = self.subject.misregistered(branch.best)
        if branch.misregistered:
            self.findings.notes = [
                note for note in self.findings.notes if note not in self.findings.layer.notes
            ]
            self.findings.layer = replace(self.findings.layer, layer=SCRIPT)
            trusting = [unit for unit in branch.off if not belongs(unit, FAKE_KERNELS)]
            if trusting:
                self.findings.notes.append(
                    f"it passes with {', '.join(trusting)} off, which trusts the registration"
                )

    def _comparable(self, branch: Branch[CandidateType]) -> bool:
        """Return whether stages can be compared: with a unit off, or by AOTAutograd's graphs."""
        if not branch.off or branch.misregistered or not self.subject.keeps_stages:
            return False
        if branch.failure.compiles_slowly:
            return False  # it would compile even longer while the texts are written
        hangs = branch.failure.kind is Kind.HANG
        if hangs and self.oracle.spending.seconds_left < HANGING_REPRO:
            return False  # the repro needs this time
        in_autograd = self.findings.layer.switch == AUTOGRAD
        return not branch.is_layer or (in_autograd and branch.failure.kind is Kind.WRONG)

    def _stages(self, branch: Branch[CandidateType], number: int) -> None:
        """Find where in the pipeline the fault appears, with only the units on that it needs."""
        fails = branch.base.allowing(branch.only) if branch.only else branch.base
        folder = self._folder / "stages" / str(number)
        if branch.is_layer:
            self._inside_autograd(branch, folder)
            return
        branch.stages = find_stage(self.oracle, branch.best, fails, branch.off, folder)
        if branch.stages is None:
            self.findings.notes.append(
                "the stages were not compared: with the culprit off it did not pass"
            )

    def _inside_autograd(self, branch: Branch[CandidateType], folder: Path) -> None:
        """Find the stage of AOTAutograd at fault."""
        found = find_autograd_stage(self.oracle, branch.best, branch.base, folder)
        if found is not None:
            branch.stages, what = found
            self.findings.notes.append(f"the values first differ in {branch.stages.stage}: {what}")

    def _repro(self, branch: Branch[CandidateType], path: Path) -> None:
        note = Reproduction(self.subject, self.oracle, self.log).write(branch, path)
        self.findings.notes += [note] * bool(note)
        if branch.fails:
            kernel = kernel_at_fault(path, branch.failure, self.oracle.spending.seconds_left)
            self.findings.notes += [kernel] * bool(kernel)
        sure = self.findings.confirmed and not (branch.is_layer and self.findings.layer.in_doubt)
        branch.confirmed = branch.fails and branch.passes and sure

    @property
    def _folder(self) -> Path:
        assert self.log.folder is not None
        return self.log.folder

    def _attempt(self, what: str, step: Callable[[], None]) -> None:
        self.findings.attempt(what, step, self.log)
