"""Finds the layer at fault for a script that fails as a whole, and writes a repro that shows it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.layer_names import (
    AOTINDUCTOR,
    AUTOGRAD,
    AUTOGRAD_BACKWARD,
    BACKEND,
    CACHE,
    DECOMPOSITIONS,
    DYNAMO,
    DYNAMO_CODE,
    GUARDS,
    OPERATORS,
    OWN_BRANCHES,
    OWN_CODE,
    PROGRAM_PASSES,
    SCRIPT,
    STAND_INS,
    WRAPPER,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.user_frames import guard_at_limit, lines_of_error
from tcdebug.minifier.investigation.cache_entries import STAGES, wrong_entries
from tcdebug.minifier.investigation.eager_report import eager_report
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    ReportedRung,
)
from tcdebug.minifier.investigation.script_layers import RECOMPILED, LayerSearch, ScriptLayer
from tcdebug.minifier.investigation.script_runs import ScriptRuns
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.repros.claims import withdraw_claim
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.repros.verify import contradiction, run_both_ways, times_to_confirm
from tcdebug.minifier.search.repeats import Rate, confidence
from tcdebug.minifier.subjects.layer_texts import Off, described, evidence, listed, shown_by

START_SECONDS = 30.0
"""A repro of a hang may take this much longer than a run that is forked: it imports torch."""
HAS_UNITS = (AUTOGRAD, DECOMPOSITIONS, BACKEND, PROGRAM_PASSES)
"""Layers that contain units, so that a search for the unit says more."""
ROUNDS = (AUTOGRAD, DECOMPOSITIONS, BACKEND, GUARDS[BACKEND], AOTINDUCTOR)
"""Layers that may round otherwise than eager without a fault."""

NONE_ALONE = "the script fails as a whole, but none of its graphs fails alone"
"""A note on a script without a graph that was seen to fail."""
NONE_JUDGED = (
    "its graphs were not judged alone: it fails where they run in eager, so none of them is needed"
)
"""A note on a script that was searched as a whole at once."""
PASSES_WITHOUT_TCDEBUG = (
    "it passes without tcdebug in its process, which imports torch and its compiler before the "
    "script; with these, it fails in eager too"
)
EAGER_RERUNS, EAGER_RERUNS_IN_DOUBT = 1, 3
"""How often a script runs in eager again if its repro confirms the layer, and if it does not."""


SEARCHED_AGAIN = "the layer is searched for in fresh processes"
IN_FRESH_PROCESSES = Fallback(
    SEARCHED_AGAIN,
    "the script ended otherwise there than in forks of a process that has imported torch",
)
NO_LAYER_IN_FORKS = Fallback(
    SEARCHED_AGAIN,
    "the runs in forks of a process that has imported torch left the layer undecided, and fresh "
    "processes ended otherwise",
)


class _Contradicted(Exception):
    """A fresh process ended otherwise than forks did before and after it."""


@dataclass(frozen=True)
class ScriptFailure:
    """A script that fails as it is, and the layer at fault."""

    job: Job
    failure: Outcome
    finding: ScriptLayer
    runs: ScriptRuns
    search: LayerSearch
    in_budget: bool = True
    """Whether the search for the layer came to its end within the budget."""
    own_fault: bool = False
    """Whether it rejects correct results, has wrong code for being compiled, or measures times."""
    flaky: str = ""
    """A note on the runs in eager that failed, if only some of them did."""

    @property
    def in_backend(self) -> bool:
        """Whether the backend is at fault, which `within_backend` narrows down."""
        return self.finding.settled and self.finding.layer == BACKEND

    @property
    def why_in_fresh_processes(self) -> Fallback:
        """Why the layer is searched for again, in fresh processes."""
        return IN_FRESH_PROCESSES if self.finding.settled else NO_LAYER_IN_FORKS

    def holds_in_fresh_processes(self) -> bool:
        """Return whether no fresh process contradicts the runs that led to the layer, or to none.

        Layers other than the script are confirmed later, by running their repro in fresh processes.
        If the layer is undecided, runs that failed in a different way are the reason.
        """
        if not self.finding.settled:
            different = [
                off for off, outcome in self.finding.runs.items() if off and self._differs(outcome)
            ]
            return all(self._differs(o) for o in self.runs.ask_each_fresh(different))
        if self.finding.layer != SCRIPT:
            return True
        eager = self.finding.runs[(DYNAMO,)]
        return eager.same_bug(self.runs.ask_fresh((DYNAMO,)))

    def _differs(self, outcome: Outcome) -> bool:
        return outcome.failed and not self.failure.same_bug(outcome)

    def within_backend(self) -> ScriptFailure:
        """Return this failure with its layer narrowed down within the backend."""
        try:
            return replace(self, finding=self.search.within_backend())
        except BudgetUsed:
            return replace(self, finding=self.search.so_far(), in_budget=False)

    def checked_for_own_fault(self) -> ScriptFailure:
        """Return this failure, and whether the script itself is wrong.

        The script runs for this only if Dynamo is at fault, and the script or a library that it
        imports asks whether it is compiled. Or if it fails by its results, and a graph differs in
        rounding or was not judged alone.
        """
        if self.in_dynamo:
            return self._checked(lambda: self.search.own_code(self.finding.layer))
        possible = not self.finding.settled or self.finding.layer in ROUNDS
        judged = self.failure.kind in (Kind.EXCEPTION, Kind.WRONG)
        if not (possible and judged and self.runs.may_round()):
            return self
        return self._checked(self.search.rejects_rounding)

    def _checked(self, shown_by: Callable[[], str]) -> ScriptFailure:
        """Return this failure with the layer that shows that the script is wrong, if one does."""
        try:
            shown = shown_by()
        except BudgetUsed:
            return replace(self, in_budget=False)
        misleading = evidence(self.finding.layer) if shown in OWN_CODE else ""
        notes = tuple(note for note in self.finding.notes if note != misleading)
        asked = self.runs.asked_at() if shown == OWN_BRANCHES else []
        notes = (evidence(shown), *asked, *notes) if shown else notes
        finding = replace(self.finding, runs=self.search.runs, notes=notes)
        return replace(self, finding=finding, own_fault=bool(shown))

    @property
    def longest(self) -> float:
        """The seconds that a further run may take."""
        return self.runs.seconds if self.failure.kind is Kind.HANG else math.inf

    @property
    def in_dynamo(self) -> bool:
        """Whether Dynamo or one of its guards is at fault."""
        return self.finding.settled and self.finding.layer in (DYNAMO, OPERATORS, GUARDS[DYNAMO])

    @property
    def has_units(self) -> bool:
        """Whether a unit of the layer can be searched for in the budget."""
        return self.in_budget and (self.finding.layer in HAS_UNITS or not self.finding.settled)

    @property
    def known_layer(self) -> LayerFinding | None:
        """AOTAutograd, if the runs settle on it. The units of the backend are then not searched."""
        layer = self.finding.layer
        if not self.finding.settled or layer != AUTOGRAD:
            return None
        return LayerFinding(layer, layer, notes=self.finding.notes)

    @property
    def seen(self) -> list[Outcome]:
        """How it failed in the runs with its own backend."""
        own = [(), (CACHE,), *((name,) for name in GUARDS.values())]
        runs = self.finding.runs
        return [runs[off] for off in own if off in runs and runs[off].failed]

    @property
    def seen_alone(self) -> list[Outcome]:
        """How it failed in the runs with AOTAutograd and nothing after it."""
        runs = self.finding.runs.items()
        return [outcome for off, outcome in runs if DECOMPOSITIONS in off and outcome.failed]

    @property
    def ladder(self) -> list[ReportedRung]:
        """The runs, as in a report."""
        return [
            ReportedRung(_backend(off), outcome.kind.value, list(off))
            for off, outcome in self.finding.runs.items()
            if off
        ]

    @property
    def announcement(self) -> str:
        """The layer and what leads to it; all runs if the layer is undecided."""
        if self.own_fault:
            return self.finding.notes[0]
        if self.finding.settled:
            return f"{' and '.join(self.finding.off)}: {shown_by(self.finding.layer)}"
        failing, passing = (
            [described(off) for off, outcome in self.finding.runs.items() if ends(outcome)]
            for ends in (self.failure.same_bug, lambda outcome: outcome.kind is Kind.OK)
        )
        runs = f"it fails {listed(failing)}"
        if passing:
            runs += f", and passes {listed(passing)}"
        return f"no layer yet: {runs}"

    def report(self) -> Report | None:
        """Make the report, after running the repro with and without the layer.

        It shows only commands that were run and behaved as it claims. None if fresh processes do
        not confirm what forks showed. The layer must then be searched in fresh processes.
        """
        try:
            return self._verified_report()
        except _Contradicted:
            return None

    def _verified_report(self) -> Report | None:
        folder = Path(self.job.run_dir)
        if not self.in_budget:
            return self._budget_report(folder)
        if self.finding.layer == SCRIPT:
            if not self.flaky and self.runs.passes_plainly():
                return self._report_of_passing(folder)
            return self._eager_report(folder)
        path = self.write_repro()
        off = self.finding.off
        times = times_to_confirm(off, self.finding.runs, self.failure)
        with run_both_ways(path, off, self.runs.deadline - time.monotonic(), times) as ending:
            flaky = self._failing_in_eager(EAGER_RERUNS)
            (failing, as_said), (passing, without) = ending()
        self.runs.log.emit(failing.event(path))
        notes = [*self._wrong_entries(), *self._limit_reached(), *self.finding.notes]
        late = failing.late or (passing is not None and passing.late)
        if late:
            notes.append("the budget was used up while the repro ran")
        elif not failing.reproduced:
            notes.append(
                contradiction(as_said, "failed", "the repro script does not fail by itself")
            )
        elif passing is not None and not passing.passed:
            names = " and ".join(off)
            never = f"the repro does not pass with {names} off"
            notes.append(contradiction(without, f"passed with {names} off", never))
        passed = passing is not None and passing.passed
        if off and not passed:
            withdraw_claim(path)
        confirmed = self.finding.settled and not self.own_fault and failing.reproduced and passed
        if not late and flaky is None and not (failing.reproduced and passed):
            flaky = self._failing_in_eager(EAGER_RERUNS_IN_DOUBT, EAGER_RERUNS)
        if not late and flaky is not None:
            return flaky.report()
        undecided = failing.reproduced and not self.finding.settled  # in fresh processes too
        certain = late or confirmed or self.own_fault or undecided
        if self.runs.sessions is not None and not certain:
            return None
        if not self.search.stuck:
            notes.append(NONE_ALONE)
        shown = self._shown
        blamed = () if self.own_fault else off
        named = [Culprit(layer, layer, "", 0) for layer in blamed]
        command = f"python {path.name}"
        fault = ReportedFault(
            shown, named, confirmed=confirmed, repro=str(path),
            fails=command if failing.reproduced else "",
            passes=" ".join([command, *(f"--off={layer}" for layer in off)]) if passed else "",
            lines=lines_of_error(self.runs.logs[()].read_text(errors="replace")),
        )  # fmt: skip
        status = "confirmed" if confirmed else "budget" if late else "unconfirmed"
        return Report(
            status, shown, culprits=named, faults=[fault],
            layer=_whole_layer(self.finding.layer), ladder=self.ladder, confirmed=confirmed,
            repro=str(path),
            confidence=confidence(Rate(1, 1), 2), reruns=self.runs.runs, run_dir=str(folder),
            notes=notes,
        )  # fmt: skip

    def _failing_in_eager(self, runs: int, done: int = 0) -> ScriptFailure | None:
        """Run the script in eager again, `runs` times in all, of which `done` have been made.

        Return this failure as flaky if it fails once. A script that fails at random can fail and
        pass in exactly the runs that lead to a layer. The processes are fresh, because forks share
        a hash seed. Raises _Contradicted if a further fork passes, so that it may not be random.
        """
        own = self.finding.layer in (WRAPPER, DYNAMO_CODE)
        off = (self.finding.layer,) if own else (DYNAMO,)
        known = self.finding.runs.get(off)
        if known is not None and self.failure.same_bug(known):
            return None  # it fails in eager every time, so another failure there means nothing
        for number in range(done, runs):
            try:
                outcome = self.runs.ask_fresh(off)
            except BudgetUsed:
                return None
            if self.failure.same_bug(outcome):
                if self.runs.sessions is not None and self.runs.ask((off,))[off].kind is Kind.OK:
                    raise _Contradicted
                later = f"run {number + 2} failed"
                note = f"it fails in some runs only: in eager run 1 passed, and {later}"
                finding = ScriptLayer(SCRIPT, {**self.finding.runs, (DYNAMO,): outcome}, True)
                return replace(self, finding=finding, flaky=note)
        return None

    def _wrong_entries(self) -> list[str]:
        """Name the wrong entries of the cache at fault, as far as torch traces that cache."""
        if not self.finding.settled or self.finding.layer not in STAGES:
            return []
        try:
            folder = Path(self.job.run_dir) / "cache"
            used, unused = self.runs.traced(((), self.finding.off), folder)
        except BudgetUsed:
            return ["the budget was used up before the wrong entry was searched for"]
        return wrong_entries(used, unused, self.finding.layer)

    def _limit_reached(self) -> list[str]:
        """Name the guard because of which Dynamo had to compile a function too often."""
        if not RECOMPILED.search(self.failure.message):
            return []
        said = guard_at_limit(self.runs.logs[()].read_text(errors="replace"))
        return [said] if said else []

    def write_repro(self) -> Path:
        """Write the repro to the run folder."""
        path = Path(self.job.run_dir) / "repro.py"
        hang = replace(self.failure, seconds=self.runs.seconds + START_SECONDS)
        failure = hang if self.failure.kind is Kind.HANG else self.failure
        write_repro(self.job, failure, self.finding.off, path, self.runs.processes)
        return path

    @property
    def _shown(self) -> ReportedFailure:
        failure = self.failure
        message = failure.message[:2000]
        return ReportedFailure(failure.kind.value, failure.signature, "script", message)

    def _budget_report(self, folder: Path) -> Report:
        """Report how the script fails, and what the runs so far tell about the layer."""
        notes = [*self.finding.notes, "the budget was used up while the script ran as a whole"]
        return Report(
            "budget", self._shown, layer=self.finding.layer, ladder=self.ladder,
            reruns=self.runs.runs, run_dir=str(folder), notes=notes,
        )  # fmt: skip

    def _eager_report(self, folder: Path) -> Report:
        eager = self.finding.runs[(DYNAMO,)]
        report = eager_report(folder, self.runs.logs[(DYNAMO,)], _first_line(eager))
        notes = [*([self.flaky] if self.flaky else []), *report.notes]
        if not self.failure.same_bug(eager):
            notes.append(f"compiled, it raises at the same place: {_first_line(self.failure)}")
        return msgspec.structs.replace(
            report, ladder=self.ladder, reruns=self.runs.runs, notes=notes
        )

    def _report_of_passing(self, folder: Path) -> Report:
        """Report a script that passes without tcdebug in its process, and fails with it."""
        return Report(
            "unconfirmed", self._shown, ladder=self.ladder, reruns=self.runs.runs,
            run_dir=str(folder), notes=[PASSES_WITHOUT_TCDEBUG],
        )  # fmt: skip


def _whole_layer(layer: str) -> str:
    """Return the layer that something belongs to which can be switched off like a layer."""
    return AUTOGRAD if layer == AUTOGRAD_BACKWARD else layer


def _first_line(outcome: Outcome) -> str:
    return outcome.message.partition("\n")[0][:160]


def _backend(off: Off) -> str:
    """Return the backend of a run, or how the run differs from the script as it is."""
    return STAND_INS.get(off[0], described(off)) if len(off) == 1 else described(off)
