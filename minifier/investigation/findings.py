"""What is known so far about a failure, and its form as a report."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault, each_matters, needed
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.layer_names import OWN_RANDOM
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.investigation import report
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import NoHang, Oracle
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.subjects.subject import Subject

ONLY_A_PART = "with {} on, only a part of the graph fails; the whole graph passes"
"""A note on a unit that is at fault in a minimised graph, but not in the whole."""


@dataclass(frozen=True)
class FailureFound(Generic[CandidateType]):
    """A candidate that fails, and its outcome. `graph` is its ordinal among the script's graphs.

    `graph` is None if the script fails as a whole.
    """

    candidate: CandidateType
    outcome: Outcome
    graph: int | None = None


@dataclass
class FailureFindings(Generic[CandidateType]):
    """What is known so far about a failure. Each step of an investigation adds to it."""

    found: FailureFound[CandidateType]
    base: Toggles
    """The toggles under which the failure was found."""
    branches: list[Branch[CandidateType]] = field(default_factory=list)
    layer: LayerFinding = field(default_factory=LayerFinding)
    notes: list[str] = field(default_factory=list)
    confidence: float = 1.0
    """The confidence that no pass on which a verdict rests was luck."""
    confirmed: bool = False
    """Whether the whole subject passes without the faults found, and each of them is needed."""

    def confirm(self, oracle: CandidateOracle[CandidateType]) -> None:
        """Confirm the faults in the whole, given that it passes with all of them off.

        A unit may be at fault in a part of the whole only, because a pass that runs on the whole
        replaces the operator. Such a fault is dropped.
        """
        faults = _whole_units(self.branches)
        left = oracle.searched(lambda ask: needed(ask, self.base, faults))
        units = {fault.unit for fault in left}
        kept = [branch for branch in self.branches if units & set(branch.off)]
        if all(branch.base == self.base for branch in kept):
            dropped = [branch.off for branch in self.branches if not units & set(branch.off)]
            self.notes += [ONLY_A_PART.format(", ".join(off)) for off in dropped]
            self.branches, faults = kept, _whole_units(kept)
        self.confirmed = oracle.searched(lambda ask: each_matters(ask, self.base, faults))

    def names(self, unit: str) -> bool:
        """Return whether a unit was found to be at fault."""
        return any(b.fault is not None and b.fault.unit == unit for b in self.branches)

    def repeat(self, fault: Fault) -> bool:
        """Return whether a fault found last was found before, and drop it if so, with a note."""
        before = [b.fault.unit for b in self.branches[:-1] if b.fault is not None]
        if fault.unit not in before:
            return False
        self.branches.pop()
        self.notes.append(f"it fails with {fault.unit} off too, and {fault.unit} is named again")
        return True

    def raises_instead(self, branch: Branch[CandidateType], left: Outcome) -> bool:
        """Return whether only what takes the place of a culprit raises, and note it.

        The minimised graph then confirms the culprit, since the whole cannot.
        """
        instead = branch.raises_instead(left)
        if instead:
            self.notes.append(f"{report.raises_instead(branch.off)}: {left.signature}")
            self.confirmed = True
        return instead

    def suspicion_holds(self, oracle: Oracle[CandidateType], log: EventLog) -> bool:
        """Wait until a failure that was suspected to be a hang has used up its time limit.

        Return False if the budget ends first. Raises NoHang.
        """
        suspected = self.found.outcome
        if not suspected.silenced:
            return True
        hang = oracle.await_suspect()
        if hang is None:
            self.notes.append(
                f"{suspected.message}: whether it ends was not known when the budget was used up"
            )
            return False
        log.emit(hang.event)
        self.found = replace(self.found, outcome=hang)
        for branch in self.branches:
            if branch.failure.silenced and branch.failure.same_bug(hang):
                branch.failure = replace(branch.failure, message=hang.message)
        return True

    def attempt(self, what: str, step: Callable[[], None], log: EventLog) -> None:
        """Run a step. An exception ends the step, not the investigation.

        Raises BudgetUsed and NoHang.
        """
        try:
            step()
        except (BudgetUsed, NoHang):
            raise
        except Exception as problem:
            log.emit(Fallback(f"{what} was abandoned", traceback.format_exc()))
            text = f"{type(problem).__name__}: {problem}".splitlines()[0]
            self.notes.append(f"{what} was abandoned because of an error in tcdebug: {text}")

    def as_report(
        self,
        status: str,
        subject: Subject[CandidateType],
        oracle: Oracle[CandidateType],
        run_dir: Path,
    ) -> report.Report:
        """Make the report. It shows only commands that were run and behaved as it claims."""
        branches = self.branches or [Branch(self.found.outcome, self.base, self.found.candidate)]
        first = branches[0]
        faults = [_fault(branch, subject) for branch in branches]
        return report.Report(
            status=status,
            failure=_failure(self.found.outcome),
            graph=self.found.graph,
            culprits=[fault.culprits[0] for fault in faults if fault.culprits],
            faults=faults,
            layer=self.layer.layer,
            ladder=[report.ReportedRung(r.backend, r.outcome.kind.value) for r in self.layer.rungs],
            confirmed=status == "confirmed",
            confidence=self.confidence,
            others={signature: str(path) for signature, path in oracle.others.scripts.items()},
            repro=str(first.repro) if first.repro else None,
            nodes_before=self.found.candidate.size,
            nodes_after=first.best.size,
            reruns=oracle.reruns,
            seconds=round(oracle.spending.seconds, 3),
            cpu_seconds=round(oracle.cpu_seconds, 3),
            run_dir=str(run_dir),
            notes=[*self.notes, *self._on_random_numbers()],
        )

    def _on_random_numbers(self) -> list[str]:
        """Return a note on a script that may fail only because other numbers are drawn."""
        units = {unit for branch in self.branches for unit in branch.off}
        failure = self.found.outcome
        raised = failure.phase != "script" or "InductorError" in failure.signature
        return [report.DRAWS_OTHERS] if OWN_RANDOM in units and not raised else []


def _whole_units(branches: Sequence[Branch[CandidateType]]) -> list[Fault]:
    """Return the faults of branches, each with its whole unit."""
    return [replace(fault, whole_unit=True) for branch in branches for fault in branch.faults]


def _fault(branch: Branch[CandidateType], subject: Subject[CandidateType]) -> report.ReportedFault:
    command = f"python {branch.repro.name}" if branch.repro else ""
    only = [f"--only={unit}" for unit in branch.only]
    off = [f"--off={unit}" for unit in branch.off]
    units = _culprits(branch)
    enabled = branch.enabled if units and not branch.within else None
    return report.ReportedFault(
        failure=_failure(branch.failure),
        culprits=units,
        misregistered=branch.misregistered,
        alternatives=[fault.unit for fault in branch.alternatives] if units else [],
        partners=list(enabled.partners) if enabled else [],
        either=[list(group) for group in enabled.either] if enabled else [],
        requires=list(enabled.requires) if enabled else [],
        within=list(branch.within) if units else [],
        confirmed=branch.confirmed,
        repro=str(branch.repro) if branch.repro else None,
        short=str(branch.short) if branch.short else None,
        nodes=branch.best.size,
        fails=command if branch.fails else "",
        only_fails=" ".join([command, *only]) if branch.only_fails else "",
        passes=" ".join([command, *off]) if branch.passes else "",
        lines=subject.lines(branch.best),
        stages=branch.stages,
    )


def _culprits(branch: Branch[CandidateType]) -> list[report.Culprit]:
    """Return the decisions at fault; none if the registration of a custom operator is at fault."""
    if branch.fault is None or branch.misregistered:
        return []
    return report.culprits(branch.fault.decisions)


def _failure(outcome: Outcome) -> report.ReportedFailure:
    direction = "script" if outcome.phase == "script" else outcome.direction
    return report.ReportedFailure(
        outcome.kind.value, outcome.signature, direction, outcome.message[:2000]
    )
