"""Turns the current state of an investigation into a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.investigation import report
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.subjects.subject import Subject


@dataclass(frozen=True)
class FailureFound(Generic[CandidateType]):
    """A candidate that fails, and its outcome. `graph` is its ordinal among the script's graphs.

    `graph` is None if the script fails as a whole.
    """

    candidate: CandidateType
    outcome: Outcome
    graph: int | None = None


@dataclass(frozen=True)
class InvestigationState(Generic[CandidateType]):
    """Everything a report is made from."""

    found: FailureFound[CandidateType]
    subject: Subject[CandidateType]
    branches: Sequence[Branch[CandidateType]]
    layer: LayerFinding
    confidence: float
    notes: Sequence[str]
    others: Mapping[str, Path] = field(default_factory=dict)

    def as_report(self, status: str, oracle: Oracle[CandidateType], run_dir: Path) -> report.Report:
        """Make the report. It shows only commands that were run and behaved as it claims."""
        first = self.branches[0]
        faults = [self._fault(branch) for branch in self.branches]
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
            others={signature: str(path) for signature, path in self.others.items()},
            repro=str(first.repro) if first.repro else None,
            nodes_before=self.found.candidate.size,
            nodes_after=first.best.size,
            reruns=oracle.reruns,
            seconds=round(oracle.spending.seconds, 3),
            cpu_seconds=round(oracle.cpu_seconds, 3),
            run_dir=str(run_dir),
            notes=list(self.notes),
        )

    def _fault(self, branch: Branch[CandidateType]) -> report.ReportedFault:
        command = f"python {branch.repro.name}" if branch.repro else ""
        only = [f"--only={unit}" for unit in branch.only]
        off = [f"--off={unit}" for unit in branch.off]
        units = _culprits(branch)
        enabled = branch.enabled if units else None
        return report.ReportedFault(
            failure=_failure(branch.failure),
            culprits=units,
            misregistered=branch.misregistered,
            alternatives=[fault.unit for fault in branch.alternatives] if units else [],
            partners=list(enabled.partners) if enabled else [],
            either=[list(group) for group in enabled.either] if enabled else [],
            requires=list(enabled.requires) if enabled else [],
            confirmed=branch.confirmed,
            repro=str(branch.repro) if branch.repro else None,
            short=str(branch.short) if branch.short else None,
            nodes=branch.best.size,
            fails=command if branch.fails else "",
            only_fails=" ".join([command, *only]) if branch.only_fails else "",
            passes=" ".join([command, *off]) if branch.passes else "",
            lines=self.subject.lines(branch.best),
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
