"""From a failing case to culprits and repros: bisect, minimise for each fault, write, verify."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import ReproVerify, ReproWrite
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import (
    MOST_FAULTS,
    Ask,
    Fault,
    Verdict,
    bisect,
    each_matters,
)
from tcdebug.minifier.bisection.certainty import FURTHER, Sure, surely
from tcdebug.minifier.bisection.enabled import Enabled, fewest_enabled
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.environment import variables_to_try
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.provenance import user_lines
from tcdebug.minifier.investigation import report, stages
from tcdebug.minifier.oracles.case_oracle import CaseOracle
from tcdebug.minifier.oracles.oracle import BudgetUsed, Oracle, Question
from tcdebug.minifier.reduction.reducer import Interesting, Reducer, reduce_ahead
from tcdebug.minifier.repros import repro, verify
from tcdebug.minifier.search.repeats import passes_needed
from tcdebug.minifier.targets import ladder
from tcdebug.minifier.targets.backends import EMBEDDED

COLD = 3.0
"""How much longer than a warm candidate a repro script may take."""
COLD_SECONDS = 60.0
"""It is given at least this where another compiler than ours builds its kernels, none cached."""
RECENT = 32
"""Passing candidates that are remembered: the nearest one is shown beside the repro."""


@dataclass(frozen=True)
class Found:
    """A failing case in a script: which graph, how it fails, and what surrounds it."""

    case: Case
    outcome: Outcome
    ordinal: int
    ambient: Ambient
    setups: tuple[str, ...] = ("",)
    """Python that a repro may need before its graph, the least first; see `session`."""


@dataclass
class Branch:
    """One fault and the case that shows it alone, on its way to a repro."""

    failure: Outcome
    base: Toggles
    """What is off because it belongs to other faults."""
    best: Case
    fault: Fault | None = None
    enabled: Enabled | None = None
    passing: deque[Case] = field(default_factory=lambda: deque(maxlen=RECENT))
    stages: report.StageDiff | None = None
    repro: Path | None = None
    confirmed: bool = False

    @property
    def off(self) -> list[str]:
        """The unit without which it passes."""
        return [self.fault.unit] if self.fault is not None else []

    @property
    def is_layer(self) -> bool:
        """Whether no unit is at fault, but a whole layer of torch."""
        return self.fault is not None and self.fault.unit in ladder.BELOW

    @property
    def nearest_passing(self) -> Case | None:
        """The passing case met on the way that differs least in size, the latest of them."""
        return min(reversed(self.passing), key=lambda c: abs(c.size - self.best.size), default=None)


@dataclass
class Investigation:
    """One failure on its way to a report. What is known so far is in it at any time."""

    found: Found
    oracle: Oracle
    log: EventLog
    base: Toggles
    bisecting: bool = True
    minimising: bool = True
    wanted_confidence: float = 0.99
    confidence: float = 1.0
    """How sure it is that no pass that a verdict rests on was luck."""
    confirmed: bool = False
    """Whether without the faults found the whole graph passes, and each of them matters."""
    layer: str = ""
    rungs: list[ladder.Rung] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> report.Report:
        """Everything, in order. Ends early, with the best so far, when the budget is used up."""
        in_budget = True
        try:
            if self.minimising:
                self._fault_by_fault()
            if self.bisecting and not self.confirmed:
                self._whole_graph()
        except BudgetUsed:
            in_budget = False
            self.notes.append("the budget is used up: the best so far is kept")
        if not self.branches:
            self.branches = [Branch(self.found.outcome, self.base, self.found.case)]
        for number, branch in enumerate(self.branches, 1):
            if in_budget and branch.off and not branch.is_layer:
                self._stages(branch, self.oracle.folder / "stages" / str(number))
            self._repro(branch, "repro.py" if number == 1 else f"repro_{number}.py")
        return self._report(self._status(in_budget))

    def _status(self, in_budget: bool) -> str:
        if not in_budget:
            return "budget"
        if not self.bisecting:
            return "minimized" if self.branches[0].repro is not None else "unconfirmed"
        return "confirmed" if all(b.confirmed for b in self.branches) else "unconfirmed"

    # -- minimise, then bisect what is left -------------------------------------------------

    def _fault_by_fault(self) -> None:
        """Minimise and bisect; switch the culprit off in the whole graph, and again."""
        toggles, left = self.base, self.found.outcome
        while left.failed and len(self.branches) < MOST_FAULTS:
            branch = Branch(left, toggles, self.found.case)
            self.branches.append(branch)
            self.oracle.hunted = left
            self._minimise(branch)
            if not self.bisecting:
                return
            self._bisect(branch)
            if branch.fault is None or self._named_before(branch.fault):
                return
            toggles = toggles.without(off=branch.off)
            left = self._ask(toggles, f"the whole graph without {branch.fault.unit}")
        faults = [b.fault for b in self.branches if b.fault is not None]
        whole = [replace(f, whole_unit=True) for f in faults]
        self.confirmed = left.kind is Kind.OK and CaseOracle(self.oracle, self.found.case).searched(
            lambda ask: each_matters(ask, self.base, whole)
        )

    def _named_before(self, fault: Fault) -> bool:
        """Whether switching the unit off did not help: then there are no more faults to find."""
        before = [b.fault.unit for b in self.branches[:-1] if b.fault is not None]
        if fault.unit not in before:
            return False
        self.branches.pop()
        self.notes.append(f"with {fault.unit} off it fails too, and {fault.unit} is named again")
        return True

    def _ask(self, toggles: Toggles, purpose: str) -> Outcome:
        return self.oracle.ask(self.found.case, toggles, purpose)

    def _minimise(self, branch: Branch) -> None:
        """The smallest case that fails the same way and, once it is known, for the same unit."""

        def ask(question: Question) -> Outcome:
            outcome = self.oracle.answer(question)
            if outcome.kind is Kind.OK and question.toggles == branch.base:
                branch.passing.append(question.case)
            return outcome

        def interesting(ask: Callable[[Question], Outcome]) -> Interesting:
            def fails(case: Case, purpose: str) -> bool:
                if not branch.failure.still_shown_by(ask(Question(case, branch.base, purpose))):
                    return False
                if not branch.off:
                    return True
                toggles = branch.base.without(off=branch.off)
                outcome = ask(Question(case, toggles, f"{purpose}, culprit off"))
                return outcome.kind is Kind.OK

            return fails

        reducer = Reducer(branch.best, self.log)
        try:
            reduce_ahead(reducer, ask, self.oracle, interesting)
        finally:
            branch.best = reducer.best

    def _bisect(self, branch: Branch) -> None:
        """The unit at fault in the small case, and what else has to be on for it."""
        asked = CaseOracle(self.oracle, branch.best)
        if branch.base != self.base:
            alone = asked.ask(self.base, "by itself")
            branch.base = self.base if branch.failure.same_bug(alone) else branch.base
        failure = asked.ask(branch.base, "the smallest graph")
        if not failure.decisions:
            self._layers(branch, asked, failure, core=False)
            return
        sure = self._surely(asked, failure, branch.base)
        if sure.verdict.faults:
            branch.fault = sure.verdict.faults[0]
            if sure.rate.failed < sure.rate.runs:
                self._minimise(branch)  # with as many repeats as it takes
                asked = CaseOracle(self.oracle, branch.best)
                failure = asked.ask(branch.base, "the smallest graph")
            unit = branch.fault.unit
            branch.enabled = asked.searched(
                lambda ask: fewest_enabled(ask, failure, unit, branch.base)
            )
        elif sure.verdict.core:
            self._layers(branch, asked, failure, core=True)

    def _surely(self, asked: CaseOracle, failure: Outcome, base: Toggles) -> Sure:
        """Bisect a case until it is sure, or name nothing."""

        def search(ask: Ask) -> Verdict:
            return asked.searched(
                lambda ask: bisect(ask, failure, base, self.log),
                lambda ask: bisect(ask, failure, base, EventLog(None)),
                ask,
            )

        sure = surely(asked, failure, base, search, self.wanted_confidence)
        self.confidence = min(self.confidence, sure.confidence)
        self.notes += sure.notes(self.wanted_confidence)
        return sure

    def _layers(self, branch: Branch, asked: CaseOracle, failure: Outcome, *, core: bool) -> None:
        """The layer of torch at fault, where no unit is."""
        rate = asked.rate(branch.base, failure, FURTHER)
        passes = passes_needed(rate, len(ladder.BELOW), self.wanted_confidence)
        if passes is None:
            self.notes.append("it fails too rarely to tell which layer is at fault")
            return
        asked.need(passes)
        self.layer, self.rungs = asked.searched(lambda ask: ladder.climb_down(ask, branch.base))
        self.notes.append(self._layer_note(core))
        self.notes += [
            f"{rung.backend} fails in another way: {rung.outcome.message}"
            for rung in self.rungs
            if rung.outcome.failed and not failure.same_bug(rung.outcome)
        ]
        if self.layer != ladder.LAST:
            decision = Decision(self.layer, self.oracle.target.name, "", 0, True)
            branch.fault = Fault(failure, (decision,), whole_unit=True)

    def _layer_note(self, core: bool) -> str:
        if self.layer == ladder.LAST:
            return "it fails with the backend eager too: Dynamo, or the graph itself, is at fault"
        name, passes = self.oracle.target.name, self.rungs[-1].backend
        seen = "it fails with every unit off" if core else "none of its units is at fault"
        return f"{seen}; with {passes} in place of {name} it passes, so it is {self.layer}"

    # -- bisect the whole graph, then minimise ----------------------------------------------

    def _whole_graph(self) -> None:
        """Where the small case did not tell, or is not wanted: bisect first."""
        failure = self.oracle.hunted = self.found.outcome
        if not failure.decisions:
            return
        verdict = self._surely(CaseOracle(self.oracle, self.found.case), failure, self.base).verdict
        if not verdict.faults or (self.branches and not verdict.confirmed):
            return
        self.confirmed = verdict.confirmed
        self.branches = []
        for fault in verdict.faults:
            others = [f.unit for f in verdict.faults if f.unit != fault.unit]
            branch = Branch(fault.failure, self.base.without(off=others), self.found.case, fault)
            self.branches.append(branch)
            if self.minimising:
                self._minimise(branch)

    # -- the stages -------------------------------------------------------------------------

    def _stages(self, branch: Branch, folder: Path) -> None:
        """Where in the pipeline the fault comes in, with nothing on but what it takes."""
        fails = branch.base
        if branch.enabled is not None:
            fails = fails.allowing(branch.enabled.units())
        try:
            found = stages.find_stage(self.oracle, branch.best, fails, branch.off, folder)
        except BudgetUsed:
            self.notes.append("the budget is used up: its stages are not compared")
            return
        if found is None:
            self.notes.append("its stages are not compared: with the culprit off it did not end")
        branch.stages = found

    # -- the repro --------------------------------------------------------------------------

    def _repro(self, branch: Branch, name: str) -> None:
        """Write repros, the most self-contained first, until one fails as expected."""
        path = self.oracle.folder / name
        units = tuple(branch.off)
        for setup, variables in product(self.found.setups, variables_to_try()):
            content = repro.Repro(
                branch.failure, self.oracle.target.call(), units, self.found.ambient, setup,
                self._seconds(branch), self.oracle.wanted.slower_than, tuple(branch.base.texts()),
                variables, branch.nearest_passing, self.oracle.passes_needed,
            )  # fmt: skip
            inputs = repro.write(branch.best, content, path)
            self.log.emit(ReproWrite(str(path), branch.best.size, inputs))
            if branch.nearest_passing is not None:
                passing = path.with_name(f"{path.stem}_passes.py")
                repro.write_passing(branch.nearest_passing, content, passing)
            if self._verify(branch, path):
                if variables:
                    self.notes.append(f"the repro needs variables: {', '.join(variables)}")
                return
        self.notes.append(
            "the repro script does not fail by itself: what the script sets up is missing from it"
        )

    def _verify(self, branch: Branch, path: Path) -> bool:
        """Whether the repro fails by itself; with the culprit's unit off it must also pass."""
        branch.repro = path
        if branch.off:
            result, without = self.oracle.verify_both(path, branch.off)
        else:
            result = without = self.oracle.verify(path)
        self.log.emit(
            ReproVerify(str(path), result.reproduced, result.status, round(result.seconds, 3))
        )
        path.with_suffix(".log").write_text(result.output)
        if not result.reproduced:
            return False
        passes = bool(branch.off) and without.status == verify.PASSES
        branch.confirmed = passes and self.confirmed
        if branch.off and not passes:
            self.notes.append("the repro still fails with the culprit's unit off")
        return True

    def _seconds(self, branch: Branch) -> float:
        """A fresh process is slower than a warm one, and only a hang is measured by this."""
        if branch.failure.kind is not Kind.HANG:
            return verify.SECONDS
        ours = self.oracle.target.call()["backend"] == EMBEDDED
        least = 0.0 if ours else COLD_SECONDS
        return min(verify.SECONDS, max(least, COLD * self.oracle.limits.seconds))

    # -- the report -------------------------------------------------------------------------

    def _report(self, status: str) -> report.Report:
        first = self.branches[0]
        faults = [self._fault(branch) for branch in self.branches]
        return report.Report(
            status=status,
            failure=_failure(self.found.outcome),
            graph=self.found.ordinal,
            culprits=[fault.culprits[0] for fault in faults if fault.culprits],
            faults=faults,
            layer=self.layer,
            ladder=[report.Rung(r.backend, r.outcome.kind.value) for r in self.rungs],
            confirmed=status == "confirmed",
            confidence=self.confidence,
            others={sign: str(path) for sign, path in self.oracle.others.scripts.items()},
            repro=str(first.repro) if first.repro else None,
            nodes_before=self.found.case.size,
            nodes_after=first.best.size,
            reruns=self.oracle.reruns,
            seconds=round(self.oracle.elapsed, 3),
            cpu_seconds=round(self.oracle.cpu_seconds, 3),
            run_dir=str(self.oracle.folder),
            notes=self.notes,
        )

    def _fault(self, branch: Branch) -> report.Fault:
        command = f"python {branch.repro.name}" if branch.repro else ""
        enabled = branch.enabled
        only = [f"--only={unit}" for unit in enabled.units()] if enabled else []
        return report.Fault(
            failure=_failure(branch.failure),
            culprits=report.culprits(branch.fault.decisions) if branch.fault else [],
            partners=list(enabled.partners) if enabled else [],
            requires=list(enabled.requires) if enabled else [],
            confirmed=branch.confirmed,
            repro=str(branch.repro) if branch.repro else None,
            nodes=branch.best.size,
            fails=command,
            only_fails=" ".join([command, *only]) if only else "",
            passes=" ".join([command, *(f"--off={unit}" for unit in branch.off)]),
            lines=user_lines(branch.best),
            stages=branch.stages,
        )


def _failure(outcome: Outcome) -> report.Failure:
    return report.Failure(
        outcome.kind.value, outcome.signature, outcome.direction, outcome.message[:2000]
    )
