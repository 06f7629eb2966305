"""The mode `search`: judges the graphs of a script, and investigates the first that fails.

The investigation takes place at the failing call, with everything that the script has set up in
force. Candidates are forked from this process (see `processes.fork`). The result is a report file,
and the events show the progress.
"""

from __future__ import annotations

import contextlib
import traceback
from itertools import product
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import (
    GraphRaised,
    GraphRecorded,
    GraphRounded,
    HangSuspected,
)
from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.capture.capture_marks import CaptureMarks, no_other_capture
from tcdebug.minifier.capture.recorder import Recorder, differing_inputs
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import OVERHEAD, VALIDATION
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.placement import devices
from tcdebug.minifier.investigation.findings import FailureFindings, FailureFound
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.memory_limit import is_over_memory
from tcdebug.minifier.oracles.oracle import NoHang, Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.job import NOT_BY_ITSELF, ORDER, PARTIAL, PASSED, REPORT, Job, Rank
from tcdebug.minifier.processes.threads import Threads
from tcdebug.minifier.repros.fake_group import group_of
from tcdebug.minifier.repros.script_setup import Script, fake_group_setup, script_setup
from tcdebug.minifier.sessions.execution import Broken, Finished
from tcdebug.minifier.sessions.one_rank import REPLACED, collectives_replaced
from tcdebug.minifier.sessions.undisturbed import Undisturbed, one_at_a_time
from tcdebug.minifier.subjects.equal_elements import compared_by_elements
from tcdebug.minifier.subjects.graph import GraphSubject
from tcdebug.minifier.subjects.repro_interpreters import repro_interpreters
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.drawing import draws_apart, may_draw
from tcdebug.minifier.targets.replaced import LoadedFunctions
from tcdebug.minifier.targets.unit_names import unasked

OWN_DRAWS = (
    "the backend draws its own random numbers, so only types, dtypes, shapes and whether values "
    "are finite are compared with eager"
)
CLEAR_OVERHEAD = 3 * OVERHEAD
"""The seconds by which candidates of a slow graph exceed the limit, if the graph does. One that is
cut down until it is just above the limit may be below it in its repro."""
IN_ONE_THREAD = (
    "the graph was timed in one thread, as in its repro, since other processes do not change that "
    "time; with the script's threads it is slow too"
)


class GraphAnswer(NamedTuple):
    """The outcome of a graph, with its subject and the oracle for further questions."""

    subject: GraphSubject
    oracle: Oracle[Case]
    outcome: Outcome


class Session:
    """One run of the script in which its graphs are judged."""

    def __init__(self, job: Job, threads: Threads, answers: str = "answers.jsonl") -> None:
        self.job = job
        self.script: Script | None = Script.given(job.script, job.args)
        self.threads = threads
        self.undisturbed = Undisturbed()
        self.folder = Path(job.run_dir)
        self.log = EventLog(self.folder)
        earlier = Path(job.resume) / "answers.jsonl" if job.resume else None
        self.answers = Answers(self.folder / answers, earlier)
        self.recorder = Recorder(self.judge, job.run_dir, job.backend)
        self.marks = CaptureMarks(self.folder, lambda: self.recorder.active)
        self.recorder.marks = self.marks
        self.recorder.refusals = job.wanted.oracle == VALIDATION
        self.recorder.raised = self._raised
        self.spending = Spending(Budget(job.seconds, job.reruns))
        self.others = OtherFailures(self.folder / "other", self.log)
        self.warm: set[str] = set()
        """Names of backends that have been set up."""
        self.group: Rank | None = None
        """The place of this process in the process group that the graph needs."""
        self.replaced = False
        """Whether the collectives of the graph that is judged are replaced."""
        self.interpreters: Interpreters | None = None
        """Interpreters for the repros of the graph that was judged last."""
        self.loaded = LoadedFunctions()
        """What inductor called for each operator before the script could replace it."""

    @property
    def suspects_hangs(self) -> bool:
        """Whether the search for the cause of a hang may begin before the first run has ended."""
        return True

    def _raised(self, ordinal: int, error: Exception) -> None:
        self.log.emit(GraphRaised(ordinal, f"{type(error).__name__}: {error}"[:2000]))

    def judge(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        """Judge a graph. If it fails, investigate it and leave the script."""
        with no_other_capture():  # of a thread that sees whether the recorder is active
            self.recorder.active = False
            try:
                self.group = group_of(case)
                with (
                    self.undisturbed.search(),
                    one_at_a_time(self.folder),
                    collectives_replaced(self.group) as self.replaced,
                ):
                    finished = self._finished(case, backend, ordinal, call)
            except Exception:
                traceback.print_exc()
                raise Broken from None
            finally:
                self.recorder.active = True
        if finished:
            raise Finished

    def _finished(self, case: Case, backend: Backend, ordinal: int, call: int) -> bool:
        """Judge a graph. Return whether there is a report, of it or from another process."""
        if (self.folder / REPORT).exists():
            return True
        report = self._judged(case, backend, ordinal, call)
        if report is not None:
            self.write(report)
        return report is not None

    def _judged(self, case: Case, backend: Backend, ordinal: int, call: int) -> Report | None:
        """Return the report of a graph that fails; None if the graph does not fail."""
        self.log.emit(GraphRecorded(ordinal, case.size, call, differing_inputs(case)))
        try:
            answer = self._answer(case, backend, ordinal, call)
            if answer.outcome.kind is Kind.SLOW and self.job.wanted.oracle == "perf":
                answer = self._clearly_slow(answer, case, backend, ordinal, call)
        except BudgetUsed:
            note = f"graph {ordinal} had neither passed nor failed when the budget was used up"
            return Report(
                "budget", reruns=self.spending.reruns, run_dir=self.job.run_dir, notes=[note]
            )
        outcome = answer.outcome
        if outcome.kind is Kind.INVALID:
            self.not_judged(ordinal, outcome.message)
        if outcome.rounded:
            self.log.emit(GraphRounded(ordinal, call))
        if not outcome.failed or self._excused(answer, case, ordinal):
            return None
        try:
            return self._investigated(answer, case, backend, ordinal)
        except NoHang:
            self._forget(outcome)
            return self._judged(case, backend, ordinal, call)  # how it ended is known now

    def _excused(self, answer: GraphAnswer, case: Case, ordinal: int) -> bool:
        """Return whether a graph differs from eager only in what torch does not promise."""
        if self.job.order_counts or answer.outcome.kind is not Kind.WRONG:
            return False
        by_elements = compared_by_elements(case)
        if by_elements is None:
            return False
        what = f"graph {ordinal}, by the elements at its sorted positions"
        if answer.oracle.ask(by_elements, self.base, what).kind is not Kind.OK:
            return False
        self.log.emit(Fallback(PASSED.format(ordinal), ORDER))
        return True

    def not_judged(self, ordinal: int, reason: str) -> None:
        """Log that a graph cannot be judged by itself."""
        self.log.emit(Fallback(NOT_BY_ITSELF.format(ordinal), reason[:2000]))

    def _clearly_slow(
        self, slow: GraphAnswer, case: Case, backend: Backend, ordinal: int, call: int
    ) -> GraphAnswer:
        """Ask about a slow graph as its candidates are asked: as steadily and clearly as possible.

        They run in one thread if the graph is slow there too, and must be slower than eager by the
        square root of its ratio: a compile without some steps is often a little slower than eager.
        They must also exceed that by more than the overhead of a call, if the graph does.
        """
        job = self.job
        one_thread = self.threads.several and not devices(case)
        ways = product((True, False) if one_thread else (False,), (CLEAR_OVERHEAD, OVERHEAD))
        for threads, overhead in ways:
            wanted, found = replace(job.wanted, one_thread=threads), slow
            if threads:
                self.job = replace(job, wanted=wanted)
                found = self._answer(case, backend, ordinal, call)
            limit = max(wanted.slower_than, round(found.outcome.times**0.5, 2))
            wanted = replace(wanted, slower_than=limit, overhead=overhead)
            self.job = replace(job, wanted=wanted)
            again = self._answer(case, backend, ordinal, call)
            if again.outcome.signature == slow.outcome.signature:
                slow.oracle.drop_suspect()
                return again
        self.job = job
        return slow

    def _forget(self, suspected: Outcome) -> None:
        """Log that a graph did not hang, and remove what the search for the cause has written."""
        self.log.emit(Fallback("the search for the cause of a hang is dropped", suspected.message))
        (self.folder / PARTIAL).unlink(missing_ok=True)
        for file in (*self.folder.glob("repro*"), *self.folder.glob("short*")):
            file.unlink()

    def _investigated(
        self, answer: GraphAnswer, case: Case, backend: Backend, ordinal: int
    ) -> Report:
        """Return the report of a graph that fails. Raises NoHang."""
        base, (subject, oracle, outcome) = self.base, answer
        if outcome.silenced:
            self.log.emit(HangSuspected(outcome.direction, outcome.message))
        else:
            self.log.emit(outcome.event)
        self._log_unused_toggles(base, outcome)
        oracle = self._failing(subject, oracle, case, outcome)
        oracle.failure, oracle.passes_needed = outcome, 1
        findings = FailureFindings(FailureFound(case, outcome, ordinal), base)
        investigation = Investigation(
            findings, subject, oracle, self.log,
            self.job.bisect, self.job.minimise, self.job.confidence,
            lambda report: self.write(report, PARTIAL),
        )  # fmt: skip
        if outcome.drew and not subject.target.draws_as_eager:
            findings.notes.append(OWN_DRAWS)
        if self.job.wanted.one_thread:
            findings.notes.append(IN_ONE_THREAD)
        if backend.in_place_of:
            findings.notes.append(
                "the script compiles this graph with AOTInductor; the search compiled it with "
                f"torch.compile and {backend.name}, which is faster"
            )
        try:
            if self.interpreters is not None:
                self.interpreters.start()
            self._tighten(oracle, case, base, outcome)
            return investigation.run()
        finally:
            oracle.ask_ahead(())
            oracle.drop_suspect()
            if self.interpreters is not None:
                self.interpreters.end()

    def _answer(self, case: Case, backend: Backend, ordinal: int, call: int) -> GraphAnswer:
        """Ask about a graph, first with eager's random numbers, then with those of the backend.

        The script uses those of the backend, so they decide, unless compared values were wrong.
        Where the backend cannot draw eager's, only its own are asked about. Raises BudgetUsed.
        """
        what, own = f"graph {ordinal}, call {call}", backend.with_own_draws()
        apart = own is not None and draws_apart(case.module, case.devices())
        if apart or self.job.wanted.oracle == VALIDATION:
            return self._answer_from(own or backend, case, ordinal, what)
        asked = self._answer_from(backend, case, ordinal, what)
        outcome = asked.outcome
        if own is None or not self.job.wanted.judges_draws or outcome.kind is Kind.WRONG:
            return asked
        if not (
            outcome.drew if outcome.kind is Kind.OK else outcome.failed and may_draw(case.module)
        ):
            return asked
        again = self._answer_from(own, case, ordinal, f"{what}, with the backend's random numbers")
        if again.outcome.failed:
            asked.oracle.drop_suspect()
            return again
        if outcome.failed and again.outcome.kind is Kind.OK:
            what = f"graph {ordinal} fails only with eager's random numbers, and counts as passed"
            self.log.emit(Fallback(what, outcome.message[:2000]))
            asked.oracle.drop_suspect()
            return again
        return asked

    def _answer_from(self, backend: Backend, case: Case, ordinal: int, purpose: str) -> GraphAnswer:
        setups = self._setups(backend, ordinal)
        # a command judges a script in its own process, which may need the script's set-up
        for setup in setups if self.job.wanted.check else setups[:1]:
            subject = self._subject(backend, ordinal, setup, setups)
            oracle = self._oracle(subject)
            ask = oracle.ask_first if self.suspects_hangs else oracle.ask
            outcome = ask(case, self.base, purpose)
            if outcome.failed:
                break
        return GraphAnswer(subject, oracle, outcome)

    def _log_unused_toggles(self, base: Toggles, outcome: Outcome) -> None:
        """Log which units that are off do not occur in the failing graph."""
        if base.texts() and outcome.decisions:
            for name, near in unasked(base, [d.unit for d in outcome.decisions]).items():
                why = f"no step of the graph has this name; {near}"
                self.log.emit(Fallback(f"--off {name}", why))

    @property
    def base(self) -> Toggles:
        """The toggles of every candidate."""
        return Toggles.parse(self.job.toggles)

    def _failing(
        self, subject: GraphSubject, oracle: Oracle[Case], case: Case, outcome: Outcome
    ) -> Oracle[Case]:
        """Return the oracle with which a failing graph is investigated."""
        return oracle

    def _tighten(self, oracle: Oracle[Case], case: Case, base: Toggles, outcome: Outcome) -> None:
        """Derive the limits from a run that ends: this one, or one with everything off."""
        if is_over_memory(outcome):
            with contextlib.suppress(BudgetUsed):
                ended = oracle.ask(case, base.without(off=[ALL]), "how much memory a run holds")
                if not is_over_memory(ended):
                    oracle.tighten_memory(ended)
        if outcome.kind is not Kind.HANG:
            oracle.tighten(outcome.seconds)
            return
        with contextlib.suppress(BudgetUsed):  # the investigation will report it
            ended = oracle.ask(case, base.without(off=[ALL]), "how long a run takes")
            if ended.kind is not Kind.HANG:
                oracle.tighten_for_hangs(ended)

    def _subject(
        self, backend: Backend, ordinal: int, setup: str, setups: tuple[str, ...]
    ) -> GraphSubject:
        if backend.name not in self.warm:
            backend.warm_up(self.log)
            self.warm.add(backend.name)
        self.interpreters = repro_interpreters(backend, self.job.wanted)
        return GraphSubject(
            backend,
            self.log,
            self.job.wanted,
            self._prepare_candidate,
            setups,
            setup,
            # graphs distinguish backends that have no name
            place="" if backend.named else str(ordinal),
            memory=self.job.limits.memory,
            interpreters=self.interpreters,
            script=self.script.path if self.script else "",
            standalone=self.job.standalone,
            script_target=backend.in_place_of,
            loaded=self.loaded,
        )

    def _prepare_candidate(self) -> None:
        self.undisturbed.in_candidate()
        if not self.job.wanted.one_thread:
            self.threads.restore()

    def _oracle(self, subject: GraphSubject, jobs: int | None = None) -> Oracle[Case]:
        return Oracle(
            subject, self.log, self.answers, self.job.limits, self.spending, self.job.wanted,
            self.others,
            # a candidate that runs beside another says nothing about speed
            jobs=1 if self.job.wanted.oracle == "perf" else jobs or self.job.jobs,
            passes_needed=self.job.passes,
        )  # fmt: skip

    def _setups(self, backend: Backend, ordinal: int) -> tuple[str, ...]:
        """Return the set-ups to try: none, if possible, then the script up to the failing graph."""
        if self.script is None:
            return ("",)
        group = self.job.rank or self.group
        waits = self.replaced and not self.script.imported  # for the other ranks, when it starts
        rank = group if waits else self.job.rank
        setup = script_setup(
            self.script, ordinal, self.folder, backend.name,
            entered=self.recorder.entered, rank=rank,
            group=group,
        )  # fmt: skip
        if not backend.named:
            return (setup,)
        return ("", setup) if group is None else ("", fake_group_setup(group), setup)

    def write(self, report: Report, name: str = REPORT) -> None:
        """Write the report atomically."""
        if self.replaced and self.group is not None:
            notes = [REPLACED.format(self.group), *report.notes]
            report = replace(report, notes=notes)
        path = self.folder / name
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
        fresh.replace(path)
