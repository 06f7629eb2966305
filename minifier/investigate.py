"""From a failing case to a culprit and a repro: reproduce, bisect, minimise, write, verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import ReproVerify, ReproWrite
from tcdebug.compiler.gate import Toggles
from tcdebug.minifier import repro, verify
from tcdebug.minifier.ambient import Ambient
from tcdebug.minifier.bisect import Verdict, bisect
from tcdebug.minifier.case import Case
from tcdebug.minifier.oracle import BudgetUsed, Oracle
from tcdebug.minifier.outcome import Kind, Outcome
from tcdebug.minifier.reducer import Reducer
from tcdebug.minifier.report import Failure, Report, culprits

COLD = 3.0
"""How much longer than a warm candidate a repro script may take."""


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
class Investigation:
    """One failure on its way to a report. What is known so far is in it at any time."""

    found: Found
    oracle: Oracle
    log: EventLog
    base: Toggles
    bisecting: bool = True
    minimising: bool = True
    verdict: Verdict = field(default_factory=lambda: Verdict((), confirmed=False))
    best: Case | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Report:
        """Everything, in order. Ends early, with the best so far, when the budget is used up."""
        status = "unconfirmed"
        try:
            if self.bisecting and self.oracle.target.togglable:
                self._bisect()
            elif self.bisecting:
                name = self.oracle.target.name
                self.notes.append(f"the backend {name} has no units to switch off: minimised only")
            if self.minimising:
                self._minimise()
        except BudgetUsed:
            status = "budget"
            self.notes.append("the budget is used up: the best so far is kept")
        path, reproduced, confirmed = self._repro()
        if status != "budget":
            if not self.bisecting and reproduced:
                status = "minimized"
            elif confirmed:
                status = "confirmed"
        return self._report(status, path, confirmed)

    def _ask(self, toggles: Toggles, purpose: str) -> Outcome:
        return self.oracle.ask(self.found.case, toggles, purpose)

    def _bisect(self) -> None:
        self.verdict = bisect(self._ask, self.found.outcome, self.base, self.log)
        if self.verdict.core:
            self.notes.append(
                "it fails with every unit off: no optional step is at fault, but capture, "
                "autograd, an ATen operator or the wrapper"
            )

    def _minimise(self) -> None:
        failure, off = self.found.outcome, self.verdict.units()

        def interesting(case: Case, purpose: str) -> bool:
            """Fails the same way, and passes with only the culprits off."""
            if not failure.same_bug(self.oracle.ask(case, self.base, purpose)):
                return False
            if not off:
                return True
            without = self.oracle.ask(case, self.base.without(off=off), f"{purpose}, culprit off")
            return without.kind is Kind.OK

        reducer = Reducer(self.found.case, interesting, self.log)
        try:
            if off and not interesting(self.found.case, "culprit's unit off"):
                self.notes.append(
                    "switching the culprit's whole unit off does not make it pass: "
                    "minimised by the failure alone"
                )
                off = []
            reducer.run()
        finally:
            self.best = reducer.best

    # -- the repro --------------------------------------------------------------------------

    def _repro(self) -> tuple[str | None, bool, bool]:
        """Write repros, the most self-contained first, until one fails as expected."""
        case = self.best or self.found.case
        units = tuple(self.verdict.units())
        path = self.oracle.folder / "repro.py"
        for setup in self.found.setups:
            content = repro.Repro(
                self.found.outcome,
                self._call(),
                units,
                self.found.ambient,
                setup,
                self._seconds(),
            )
            inputs = repro.write(case, content, path)
            self.log.emit(ReproWrite(str(path), case.size, inputs))
            result = self._verify(path)
            (path.parent / "repro.log").write_text(result.output)
            if result.reproduced:
                passes = bool(units) and self._verify(path, units).status == verify.PASSES
                confirmed = self.verdict.confirmed and passes
                if units and not passes:
                    self.notes.append("the repro still fails with the culprit's unit off")
                return str(path), True, confirmed
        self.notes.append(
            "the repro script does not fail by itself: what the script sets up is missing from it"
        )
        return str(path), False, False

    def _seconds(self) -> float:
        """A fresh process is slower than a warm one, and only a hang is measured by this."""
        if self.found.outcome.kind is not Kind.HANG:
            return verify.SECONDS
        return min(verify.SECONDS, COLD * self.oracle.limits.seconds)

    def _call(self) -> dict[str, object]:
        call = self.oracle.target.call()
        toggles = self.base.texts()
        if toggles:
            call["options"] = {**call.get("options", {}), "off": toggles}
        return call

    def _verify(self, path: Path, off: Sequence[str] = ()) -> verify.Verified:
        result = verify.verify(path, off)
        self.log.emit(
            ReproVerify(str(path), result.reproduced, result.status, round(result.seconds, 3))
        )
        return result

    def _report(self, status: str, path: str | None, confirmed: bool) -> Report:
        outcome, case = self.found.outcome, self.best or self.found.case
        return Report(
            status=status,
            failure=Failure(
                outcome.kind.value, outcome.signature, outcome.direction, outcome.message[:2000]
            ),
            graph=self.found.ordinal,
            culprits=culprits(self.verdict.culprits),
            confirmed=confirmed,
            repro=path,
            nodes_before=self.found.case.size,
            nodes_after=case.size,
            reruns=self.oracle.reruns,
            seconds=round(self.oracle.elapsed, 3),
            cpu_seconds=round(self.oracle.cpu_seconds, 3),
            run_dir=str(self.oracle.folder),
            notes=self.notes,
        )
