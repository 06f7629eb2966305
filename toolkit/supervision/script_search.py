"""Searches the graphs of a script, and then the script as a whole, for the cause of its failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.layer_names import CACHE, DYNAMO, OPERATORS, ROUNDING_CONTROLS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.eager_report import with_compiles
from tcdebug.minifier.investigation.report import (
    DRAWS_OTHERS,
    Report,
    culprit_units,
    suspicion,
)
from tcdebug.minifier.investigation.script_failure import (
    IN_FRESH_PROCESSES,
    NONE_ALONE,
    ScriptFailure,
)
from tcdebug.minifier.investigation.script_line import find_line, lines_at_fault, notes_on
from tcdebug.minifier.investigation.script_runs import outcome_without
from tcdebug.minifier.investigation.whole_script import (
    IF_IT_RAISED,
    MAY_DIFFER,
    PRINTED,
    Passed,
    PrintedInEager,
    investigate_script,
    judge_script,
    printed_in_eager,
    shown_by_script,
)
from tcdebug.minifier.oracles.budget import CONFIRMING, BudgetUsed
from tcdebug.minifier.processes.job import PARTIAL, REPORT, SCRIPT_ON_DEVICES
from tcdebug.minifier.subjects.layer_texts import evidence
from tcdebug.reading.run_dir import find
from tcdebug.supervision.eager_failures import (
    culprit_notes,
    eager_failed,
    eager_problem,
    input_notes,
    not_judged,
    once_passed,
)
from tcdebug.supervision.environment import disabled, unused_caches
from tcdebug.supervision.first_look import fails_without_kernels, not_judged_alone
from tcdebug.supervision.graph_behind_script import (
    behind_script,
    lost_validation,
    slow_compile,
)
from tcdebug.supervision.ranks_alone import search_ranks
from tcdebug.supervision.recorded_graphs import (
    STUCK,
    graph_raised,
    none_judged,
    notes_of_run,
    nothing_captured,
    passes_called,
    recording_notes,
    some_not_compared,
    unended,
    why_no_graph,
)
from tcdebug.supervision.supervisor import LATE, Supervisor

PASSES_OF_A_GRAPH = 5
"""With so many runs, a failure with a rate of 70 % is missed in one of 400 cases."""
RUNS_TO_CONFIRM = 3
"""Runs of a script in which its layer is confirmed, two at a time."""
TO_FIND_LINE = 0.2
"""The part of the time left that the search for the statement may take."""
START_OF_TORCH = 30.0
"""The seconds that fresh processes side by side may take to import torch on a busy machine."""

WHOLE_SCRIPTS = (
    "each candidate ran the whole script in a fresh process: none of its graphs failed in a "
    "process that was forked before CUDA was initialised"
)
ROUNDS_ONLY = tuple(evidence(layer) for layer in ROUNDING_CONTROLS)
"""Notes on a script that tells correctly rounded results from those of eager."""
ROUNDED_BY = "the difference in rounding comes from these units; with them off, the script passes: "
"""Begins a note on a script that rejects correctly rounded results."""


@dataclass(frozen=True)
class ScriptSearch:
    """The steps from a script to a report. `run` runs its sessions."""

    run: Supervisor

    def report(self) -> Report:
        """Return the result of the search, with the cost of the whole command."""
        report = eager_problem(self.run.job.script, str(self.run.folder)) or self._search()
        report = msgspec.structs.replace(
            report, notes=[*input_notes(report), *disabled(), *report.notes]
        )
        notes = list(dict.fromkeys([*report.notes, *notes_of_run(self.run.folder, report)]))
        return self.run.costed(msgspec.structs.replace(report, notes=notes))

    def _search(self) -> Report:
        """Search the script's graphs. If none fails, run the script in eager and compiled."""
        try:
            if report := self._without_graphs():
                return report
            recorded = self._searched()
            if report := self.run.read_report(REPORT):
                return self._by_cache(report, recorded) or self._by_script(report) or report
            if recorded == STUCK:
                self.run.progress.say(unended(self.run.endless, self.run.stuck_at))
            if recorded == LATE:
                return self._unfinished("budget", "its graphs were searched")
            if report := search_ranks(self.run):
                return report
            wanted = self.run.job.wanted
            if not (wanted.check or wanted.graphs_only):
                if recorded != STUCK:
                    self.run.progress.say("no graph fails alone")
                return once_passed(self._by_layers(recorded), recorded)
            self.run.progress.say("no graph fails alone: running the script in eager")
            status = self.run.session("eager")
            if status == LATE:
                return self._unfinished("budget", "it ran in eager")
            if status != 0:
                return once_passed(eager_failed(self.run.folder, status), recorded)
            return self._sometimes_failing() or self._whole_script(recorded)
        except KeyboardInterrupt:
            return self._unfinished("interrupted")

    def _without_graphs(self) -> Report | None:
        """Return the report of a script that Dynamo makes fail; none of its graphs is judged."""
        run, say = self.run, self.run.progress.say
        if not fails_without_kernels(run.job, run.log, run.seconds_left, say, run.sessions):
            return None
        found = self._by_layers(0)
        if not (found.confirmed and found.layer.startswith(DYNAMO)) and found.status != "budget":
            return None
        return not_judged_alone(found)

    def _by_cache(self, report: Report, recorded: int) -> Report | None:
        """Return the report of a script that needs a cache to fail, and not the graph of `report`.

        A graph whose custom operator is registered wrongly fails without caches too. The script
        may not notice that, and fail because a cache returns its code for another registration.
        """
        job, wrong = self.run.job, [text for f in report.faults for text in f.misregistered]
        if not wrong or report.status != "confirmed" or not job.bisect or job.wanted != Criteria():
            return None
        self.run.progress.say("running the script as it is, and with all caches off")
        try:
            if self._outcome().kind is Kind.OK or self._outcome(CACHE).kind is not Kind.OK:
                return None
        except BudgetUsed:
            return None
        found = self._by_layers(recorded)
        if not (found.confirmed and found.layer.startswith(CACHE)):
            return None
        note = f"graph {report.graph} fails too, but the script passes with {CACHE} off: {wrong[0]}"
        notes = [*(n for n in found.notes if n != NONE_ALONE), note]
        return msgspec.structs.replace(found, notes=notes)

    def _by_script(self, report: Report) -> Report | None:
        """Return the report of a graph whose culprit the script confirms, as no repro of it does.

        A worker that is spawned may set up what the graph needs in the function that it calls.
        """
        job = self.run.job
        if report.status != "unconfirmed" or not job.bisect or job.wanted != Criteria():
            return None
        return shown_by_script(job, self.run.log, self.run.seconds_left, report, self.run.sessions)

    def _outcome(self, *off: str) -> Outcome:
        """Return how the script ends without these layers. Raises BudgetUsed."""
        left, sessions = self.run.seconds_left, self.run.sessions
        return outcome_without(self.run.job, left, off, sessions, lambda: False)

    def _unfinished(self, status: str, when: str = "", known: Sequence[str] = ()) -> Report:
        """Return the best result so far of a search that was ended early, with notes."""
        report = self.run.read_report(PARTIAL) or Report(status, run_dir=str(self.run.folder))
        late = [f"the budget was used up while {when}"] if when else []
        if not report.faults or not any(fault.culprits for fault in report.faults):
            late += culprit_notes(find(str(self.run.folder)).events())
        notes = [*known, *report.notes, *late]
        return msgspec.structs.replace(report, status=status, confirmed=False, notes=notes)

    def _sometimes_failing(self) -> Report | None:
        """Return the report of a graph that passed once and fails in one of its later runs."""
        if self.run.job.wanted.oracle == "perf":  # the machine may cause a slow run
            return None
        self.run.progress.say(f"no graph failed: each is run up to {PASSES_OF_A_GRAPH} times")
        self._searched(PASSES_OF_A_GRAPH)
        return self.run.read_report(REPORT)

    def _searched(self, passes: int = 1) -> int:
        """Search the graphs, each of which must pass this many times; the script's exit status."""
        return self.run.session("search", passes=passes)

    def _by_layers(self, recorded: int, contradicted: str | None = None) -> Report:
        """Run the unchanged script. If it fails, find the layer at fault, and then the unit.

        If forks of a warm process showed a layer that is `contradicted`, all processes are fresh.
        """
        slow: Report | None = None
        known = self._whole_notes(recorded) if recorded == STUCK else []
        sessions = self.run.sessions if contradicted is None else None
        try:
            failed = judge_script(
                self.run.job, self.run.log, self.run.seconds_left, self.run.progress.say, recorded,
                endless=self.run.endless if recorded == STUCK else "", sessions=sessions,
            )  # fmt: skip
            if isinstance(failed, Report):
                return failed
            if isinstance(failed, Passed):
                return self._healthy(recorded, failed)
            if self.run.job.bisect and failed.in_backend:
                slow, notes = slow_compile(self.run, failed)
                if slow is not None and slow.confirmed:
                    return slow
                known += notes
                if report := behind_script(self.run, failed, divided=self._divided):
                    return report
            if failed.in_backend:
                failed = failed.within_backend()
            failed = failed.checked_for_own_fault()
            if slow is not None and not failed.in_budget:
                return slow
        except BudgetUsed:
            return self._unfinished("budget", "the script ran as a whole", known)
        self.run.progress.say(failed.announcement)
        if self.run.job.bisect and failed.has_units:
            found, notes = self._by_units(recorded, failed, contradicted)
            if found is not None:
                return found
            known += notes
        report = failed.report()
        if report is None:
            self.run.log.emit(IN_FRESH_PROCESSES)
            self.run.progress.say(
                "fresh processes show something else: running the script in those"
            )
            return self._by_layers(recorded, failed.finding.layer)
        known += [*self._candidates_notes(), *self._whole_notes(recorded)]
        report = with_compiles(report, failed.runs)
        report = msgspec.structs.replace(report, notes=[*known, *report.notes])
        if report.status == "confirmed":
            (fault,) = report.faults
            self.run.progress.say(
                f"seen in fresh processes: {fault.fails} fails, {fault.passes} passes"
            )
        if self.run.job.bisect and failed.in_dynamo and report.status == "confirmed":
            if recorded == STUCK and self.run.stays:
                (fault,) = report.faults
                fault = msgspec.structs.replace(fault, lines=[self.run.stuck_at])
                return msgspec.structs.replace(report, faults=[fault])
            # where Dynamo raises, it names the line
            report = report if report.faults[0].lines else self._with_line(report, failed)
        return report

    def _by_units(
        self, recorded: int, failed: ScriptFailure, contradicted: str | None
    ) -> tuple[Report | None, list[str]]:
        """Return the report of the units at fault if they are confirmed, otherwise notes on them.

        The units of a script that rejects correctly rounded results are no fault.
        """
        notes: list[str] = []
        if not failed.own_fault and graph_raised(self.run.folder):
            lost, notes = lost_validation(self.run, failed)
            if lost is not None:
                return lost, []
        if failed.finding.layer == contradicted:
            return None, notes
        units = self._whole_script(recorded, failed)
        if units.status != "confirmed":
            return None, [*notes, *suspicion(units)]
        if failed.own_fault:
            return None, [*notes, f"{ROUNDED_BY}{', '.join(culprit_units(units))}"]
        layer = failed.finding.layer
        return msgspec.structs.replace(units, layer=layer, ladder=failed.ladder), []

    def _healthy(self, recorded: int, passed: Passed) -> Report:
        """Return the report of a script that passed, unless one of its graphs fails at times."""
        notes = self._whole_notes(recorded)
        if not notes and nothing_captured(self.run.folder):
            no_graph = [] if disabled() else [why_no_graph(self.run.folder)]
            return Report("no_failure", run_dir=str(self.run.folder), notes=no_graph)
        status = "unjudged" if some_not_compared(self.run.folder) else "no_failure"
        notes += unused_caches() if status == "no_failure" else []
        healthy = Report(status, run_dir=str(self.run.folder), notes=notes)
        report = after_repeats(healthy, self._sometimes_failing())
        if report.failure is not None or self.run.job.wanted != Criteria():
            return report
        job, log, left = self.run.job, self.run.log, self.run.seconds_left
        printed = printed_in_eager(job, log, left, passed, self.run.sessions)
        return self._printing(report, printed, recorded) if printed else report

    def _printing(self, healthy: Report, printed: PrintedInEager, recorded: int) -> Report:
        """Return the report of a script that prints something else in eager.

        Printing it counts as a failure, and its cause is searched for. If none is confirmed, the
        script is healthy.
        """
        note, job = PRINTED.format(printed.difference), self.run.job
        known = [f"{note}. {IF_IT_RAISED.capitalize()}"]
        if printed.line is not None and job.bisect:
            self.run.progress.say(f"{note}: looking for the reason")
            self.run.job = msgspec.structs.replace(job, wanted=Criteria(prints=printed.line))
            found = self._by_layers(recorded)
            if found.status == "confirmed":
                return msgspec.structs.replace(found, notes=[note, *found.notes])
            self.run.job = job
            known = [note, *(text for text in found.notes if text in ROUNDS_ONLY)]
        elif printed.drawn:
            known = [note, DRAWS_OTHERS]
        elif printed.may_differ:
            known = [f"{note}; {MAY_DIFFER}"]
        return msgspec.structs.replace(healthy, notes=[*known, *healthy.notes])

    def _graphs_passed(self, recorded: int) -> Report:
        """Return the report of a script that only its graphs can make fail, and none did.

        What the oracle did not judge is no reason to say that nothing fails.
        """
        folder, oracle = self.run.folder, self.run.job.wanted.oracle
        notes = self._whole_notes(recorded)
        notes += not_judged(oracle, passes_called(folder), none_judged(folder))
        judged = not (notes or some_not_compared(folder))
        return Report("no_failure" if judged else "unjudged", run_dir=str(folder), notes=notes)

    def _with_line(self, report: Report, failed: ScriptFailure) -> Report:
        """Return the report of a script that Dynamo makes fail, with the statement that does."""
        self.run.progress.say("looking for the statement that Dynamo captures wrongly")
        job, log, left = self.run.job, self.run.log, TO_FIND_LINE * self.run.seconds_left
        off = [OPERATORS] if failed.finding.layer == OPERATORS else []
        found = find_line(job, log, left, self.run.sessions, failed.runs.seconds, off)
        notes, lines = [*notes_on(found), *report.notes], lines_at_fault(found)
        faults = [msgspec.structs.replace(fault, lines=lines) for fault in report.faults]
        return msgspec.structs.replace(report, notes=notes, faults=faults)

    def _whole_notes(self, recorded: int) -> list[str]:
        """Return notes for a report of the whole script on how its graphs were judged."""
        endless = unended(self.run.endless, self.run.stuck_at)
        return [*recording_notes(recorded, self.run.folder, endless), *self.run.unwatched()]

    def _whole_script(self, recorded: int, failed: ScriptFailure | None = None) -> Report:
        """Run the script compiled, and investigate how it fails; `failed` if its layer is known."""
        if self.run.job.wanted.graphs_only:
            return self._graphs_passed(recorded)
        self.run.progress.say("running the whole script compiled")
        layer = failed.known_layer if failed else None
        # if no unit is named, the layer has to be confirmed
        kept = seconds_to_confirm(failed.failure.seconds, self.run.job.seconds) if failed else 0.0
        left, seen = self.run.seconds_left, failed.seen if failed else []
        alone = failed.seen_alone if failed else []
        sessions = failed.runs.sessions if failed else self.run.sessions
        report = investigate_script(
            self.run.job, self.run.log, left, layer, seen, alone, sessions, kept,
            failed.longest if failed else math.inf,
        )  # fmt: skip
        notes = [*self._candidates_notes(), *self._whole_notes(recorded)]
        return msgspec.structs.replace(report, notes=[*notes, *report.notes])

    def _candidates_notes(self) -> list[str]:
        """Return the note on why the candidates of a script on a GPU were whole scripts."""
        return [WHOLE_SCRIPTS] * self._divided

    @property
    def _divided(self) -> bool:
        """Whether candidates were forked from a process that had not initialised CUDA."""
        events = find(str(self.run.folder)).events()
        purposes = {r["data"]["purpose"] for r in events if r["event"] == "worker.start"}
        return SCRIPT_ON_DEVICES in purposes


def after_repeats(healthy: Report, repeated: Report | None) -> Report:
    """Return the report of a script that passed and whose graphs all passed before, once each.

    `repeated` is that of their further runs, if there is one. A budget that ends in these is no
    reason to leave open whether the script fails.
    """
    if repeated is None:
        return healthy
    if repeated.status == "budget" and repeated.failure is None:
        note = f"the budget was used up before each graph had run {PASSES_OF_A_GRAPH} times"
        return msgspec.structs.replace(healthy, notes=[*healthy.notes, note])
    return repeated


def seconds_to_confirm(script: float, budget: float) -> float:
    """Return the time that is kept to confirm a layer, for a script and a budget in seconds.

    A run that was forked took as long as the script; those that confirm also import torch.
    """
    return RUNS_TO_CONFIRM * script + min(START_OF_TORCH, CONFIRMING * budget)
