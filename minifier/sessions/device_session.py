"""The mode `search` for a script that may initialise CUDA.

A process cannot use CUDA if its parent initialised CUDA before the fork. The session's process
therefore stops when the script is about to initialise CUDA, with everything that the script has set
up until then in force. It never initialises CUDA itself, but forks candidates that do. A child
continues the script, runs the graphs in eager on the device, and hands each over to be judged. When
a graph fails, that child is ended.

A candidate may need what the script sets up after it has initialised CUDA. Then the child searches
the graph itself, and its candidates run in replays of the script (see `processes.devices.replays`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import WorkerStart
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.handover import (
    Asked,
    Handover,
    NotTransferable,
    read_handover,
    write_handover,
)
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.channel import Parent, channel
from tcdebug.minifier.processes.devices.default_devices import DefaultDevices
from tcdebug.minifier.processes.devices.replays import (
    ScriptReplay,
    ScriptReplays,
    divided_for_replays,
)
from tcdebug.minifier.processes.devices.sleeping import Sleeping
from tcdebug.minifier.processes.devices.stopping import unfit_to_stop
from tcdebug.minifier.processes.fork import divided
from tcdebug.minifier.processes.imports import ImportsOfChildren
from tcdebug.minifier.processes.job import (
    FAULT,
    FORKED_BEFORE_CUDA,
    REPLAYED,
    REPORT,
    SCRIPT_ON_DEVICES,
    Job,
    Rank,
)
from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child, Limits
from tcdebug.minifier.processes.threads import Threads
from tcdebug.minifier.reduction.details.lift_constants import without_constants
from tcdebug.minifier.repros.fake_group import group_of
from tcdebug.minifier.sessions.execution import Broken, Finished, leave
from tcdebug.minifier.sessions.one_rank import collectives_replaced
from tcdebug.minifier.sessions.search import Session
from tcdebug.minifier.sessions.undisturbed import timers_stopped
from tcdebug.minifier.subjects.graph import GraphSubject
from tcdebug.minifier.targets.backends import INDUCTOR, Backend

NEXT, SEARCH = b"next", b"search"
"""The requests to the script's process: for the next graph, and to search the last one itself."""
WHERE = "the process that stopped before CUDA"
MEMORY = "CUDA out of memory"
NOT_FORKED = "candidates on a GPU run the whole script, each in a fresh process"


class DeviceSession(Session):
    """The session of a script. `parent` is set in the process that continues the script."""

    def __init__(self, job: Job, threads: Threads) -> None:
        super().__init__(job, threads)
        self.sleeping = Sleeping(self._divide, self.log)
        self.pid = os.getpid()
        self.parent: Parent | None = None
        self.script_process: Child | None = None
        self.handed: Handover | None = None
        self.replays: ScriptReplays | None = None
        """Set in the process that continues the script."""
        self.replay: ScriptReplay | None = None
        """Set in a process that runs the script for a candidate."""
        self.replayed: Handover | None = None
        """The graph that the script's process searches."""
        self.judges = True
        """Whether this process could judge the graph that was handed over last."""
        self.told = False
        self.serving = False
        """Whether this process has stopped before initialising CUDA."""
        self.imports = ImportsOfChildren(self.folder)
        self.candidates = 0
        """The number of candidates that were handed to replays."""

    @property
    def suspects_hangs(self) -> bool:
        """Whether the script's process need not be ended before the graph is investigated."""
        return not self.serving

    def judge(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        """Judge a graph in this process, or hand it over to the process that judges."""
        if self.replay is not None:
            self._work_on_candidate(self.replay, case, ordinal, call)
        elif self.parent is not None:
            with timers_stopped():
                self._hand_over(self.parent, case, backend, ordinal, call)
        elif self._can_fork():
            super().judge(case, backend, ordinal, call)

    def write(self, report: Report, name: str = REPORT) -> None:
        """Write the report, with a note on how candidates reached the device."""
        if self.handed is not None:
            report = msgspec.structs.replace(report, notes=[FORKED_BEFORE_CUDA, *report.notes])
        if self.replayed is not None:
            report = msgspec.structs.replace(report, notes=[REPLAYED, *report.notes])
        super().write(report, name)

    # -- the process that continues the script ------------------------------------------------

    def _hand_over(
        self, parent: Parent, case: Case, backend: Backend, ordinal: int, call: int
    ) -> None:
        """Let the other process judge a graph, and wait until it has done so."""
        path = self.folder / f"graph-{ordinal}-{call}.handover"
        try:
            lifted = without_constants(case)
            write_handover(Handover(lifted, backend, Ambient.current(), ordinal, call), path)
        except NotTransferable as problem:
            self.not_judged(ordinal, str(problem))
            return
        torch.cuda.empty_cache()
        if not self.job.replays:
            parent.reply(path.name.encode())
            if parent.request() != SEARCH:
                return
        try:
            self._search_here(path)
        finally:
            path.unlink(missing_ok=True)

    def _search_here(self, path: Path) -> None:
        """Judge a graph with candidates in replays of the script."""
        try:
            handed = self.replayed = read_handover(path)
        except NotTransferable as problem:
            self.not_judged(int(path.name.split("-")[1]), str(problem))
            return
        assert self.replays is not None
        self.warm.add(handed.backend.name)  # only replays compile
        try:
            super().judge(handed.case, handed.backend, handed.ordinal, handed.call)
        finally:
            self.replays.end()
            for left in self.folder.glob("candidate-*.handover"):
                left.unlink()
        self.replayed = None

    def _start_replay(
        self, backend: Backend, setup: str, work: str, question: Question[Case], limits: Limits
    ) -> Child:
        """Hand a candidate to a replay, which works on it."""
        replays, graph = self.replays, self.replayed
        assert replays is not None
        assert graph is not None
        self.candidates += 1
        path = self.folder / f"candidate-{self.candidates}.handover"
        asked = Asked(work, question.toggles.texts(), question.kept, self.job.wanted, setup)
        place = graph.ordinal, graph.call
        candidate = Handover(question.candidate, backend, graph.ambient, *place, asked)
        try:
            write_handover(candidate, path)
        except NotTransferable as problem:  # its replay ends without an answer
            self.log.emit(Fallback("a candidate cannot be handed to a replay", str(problem)[:2000]))
        return replays.start(str(path).encode(), place, limits, self._spares)

    @property
    def _spares(self) -> int:
        """How many replays wait: none if so many copies of the script do not fit on the device."""
        jobs = self.job.jobs
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
            return jobs
        room = torch.cuda.get_device_properties().total_memory
        return jobs if (2 * jobs + 1) * torch.cuda.max_memory_reserved() < room else 0

    # -- a process that runs the script for a candidate -----------------------------------------

    def _work_on_candidate(self, replay: ScriptReplay, case: Case, ordinal: int, call: int) -> None:
        """If this call is the one of the candidate, work on the candidate and end this process."""
        if (ordinal, call) != (replay.ordinal, replay.call):
            return
        self.recorder.active = False
        try:
            path = Path(replay.candidate().decode())
            handed = read_handover(path)
            path.unlink()
            replay.answer(self._worked_on(handed, group_of(case), replay.parent))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # the script must not continue

    def _worked_on(
        self, handed: Handover, group: Rank | None, notify: Callable[[str], None]
    ) -> bytes:
        asked = handed.asked
        assert asked is not None
        self.job = msgspec.structs.replace(self.job, wanted=asked.wanted)
        self.warm.add(handed.backend.name)  # a warm-up compiles in a fork
        subject = super()._subject(handed.backend, handed.ordinal, asked.setup, (asked.setup,))
        question = Question(handed.case, Toggles.parse(asked.toggles), "", asked.kept)
        with self.undisturbed.search(), collectives_replaced(group):
            return subject.done(asked.work, question, notify)

    def _can_fork(self) -> bool:
        """Return whether candidates can be forked from this process."""
        if self.script_process is not None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
            return True
        if not self.told:
            self.told = True
            self.log.emit(Fallback(NOT_FORKED, "the script's process has initialised CUDA"))
        return False

    # -- the process that stops ---------------------------------------------------------------

    def _divide(self) -> None:
        """Stop and serve in this process. Return only in a child, which may initialise CUDA."""
        if os.getpid() != self.pid:
            self.sleeping.wake()
            return
        if self.serving:
            raise RuntimeError("CUDA must not be initialised in a process that forks candidates")
        if torch.cuda.device_count() == 0:
            return
        self.serving = True
        defaults = DefaultDevices.left()
        if reason := unfit_to_stop():
            self.serving, self.told = False, True
            self.log.emit(Fallback(NOT_FORKED, reason))
            self._continue(defaults)
            return
        ours, theirs = channel()
        bind = bound_to_this_process()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = divided()
        if pid:
            theirs.close()
            self.log.emit(WorkerStart(SCRIPT_ON_DEVICES, pid))
            self._serve(Child(pid, None, ours, fork=os.fork))
        self.serving = False
        os.setsid()
        bind()
        ours.close()
        divided_again = divided_for_replays(self._warm_up, self.folder / "candidates.log")
        self._continue(defaults)
        self.threads.restore()
        self.log = EventLog(self.folder)
        if isinstance(divided_again, ScriptReplay):
            theirs.close()
            self.replay = divided_again
            return
        self.replays = divided_again
        self.parent = Parent(theirs)
        self.parent.request()

    def _continue(self, defaults: DefaultDevices) -> None:
        """Let the script initialise CUDA in this process, with the default devices that it set."""
        self.sleeping.wake()
        defaults.restore()

    def _serve(self, script: Child) -> NoReturn:
        """Judge the graphs that the script's process hands over, until that process ends."""
        self.script_process = script
        status = 0
        try:
            self._warm_up()
            request = NEXT
            while isinstance(reply := script.ask(request), bytes):
                with self.sleeping.outside_of_call():
                    judged = self._judge_handed(self.folder / reply.decode())
                request = NEXT if judged else SEARCH
            status = reply.status if reply.status is not None else 128 + reply.signal
        except Finished:
            pass
        except Broken:
            status = FAULT
        except BaseException:
            traceback.print_exc()
            status = FAULT
        script.end()
        leave(status)

    def _warm_up(self) -> None:
        """Set up what compiles for a GPU need, in a process that forks candidates or replays."""
        if self.job.backend not in (None, INDUCTOR):
            return
        from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

        self.recorder.active = False
        with self.sleeping.outside_of_call():
            inductor.warm_up_for_devices(self.log)
        self.recorder.active = True

    def _judge_handed(self, path: Path) -> bool:
        """Judge a graph. Return whether that was possible; if not, its file stays."""
        ordinal = int(path.name.split("-")[1])
        try:
            handed = read_handover(path)
        except NotTransferable as problem:
            self.not_judged(ordinal, f"{WHERE} cannot read the graph: {problem}")
            return False
        mine, theirs = (_set_by(a) for a in (Ambient.current(), handed.ambient))
        if gone := mine - theirs:
            self.not_judged(ordinal, f"reset after CUDA was initialised: {', '.join(sorted(gone))}")
            return False
        self.handed, self.judges = handed, True
        self.warm.add(handed.backend.name)  # a compile here might initialise CUDA
        super().judge(handed.case, handed.backend, handed.ordinal, handed.call)
        if self.judges:
            path.unlink()
        return self.judges

    def not_judged(self, ordinal: int, reason: str) -> None:
        """Log that a graph cannot be judged by itself, or only by the script's process."""
        if not self.serving:
            super().not_judged(ordinal, reason)
            return
        self.judges = False
        what = f"candidates of graph {ordinal} run the script up to the graph"
        self.log.emit(Fallback(what, reason[:2000]))

    def _subject(
        self, backend: Backend, ordinal: int, setup: str, setups: tuple[str, ...]
    ) -> GraphSubject:
        subject = replace(super()._subject(backend, ordinal, setup, setups), wake=self._wake)
        if self.replayed is not None:
            return replace(subject, replay=partial(self._start_replay, backend, setup))
        if self.handed is None:
            return subject
        entered, ambient = contextlib.ExitStack(), self.handed.ambient

        def prepare() -> None:
            self.threads.restore()
            ambient.enter(entered)

        return replace(subject, prepare=prepare, ambient=ambient, imports=self.imports)

    def _wake(self) -> None:
        """In a child, initialise CUDA. Raises torch's error if that fails."""
        self.sleeping.wake()
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch has no annotation

    def _failing(
        self, subject: GraphSubject, oracle: Oracle[Case], case: Case, outcome: Outcome
    ) -> Oracle[Case]:
        """End the script's process, because the candidates need its device memory.

        If memory ran out, the graph is judged again without that process and with one candidate at
        a time. If it then fits, the script must be judged as a whole. So it must if memory ran out
        in a replay, since the script's process has a part of it.
        """
        if self.replayed is not None:
            if MEMORY in outcome.signature:
                what = "a replay of the script ran out of device memory beside other processes"
                self.log.emit(Fallback(NOT_FORKED, what))
                raise Finished
            return oracle
        if self.script_process is not None:
            self.script_process.end()
        if MEMORY not in outcome.signature:
            return oracle
        alone = self._oracle(subject, jobs=1)
        toggles = self.base
        if not alone.rate(case, toggles, outcome, 1).failed:
            what = "a graph ran out of device memory only while the script's process had some"
            self.log.emit(Fallback(NOT_FORKED, what))
            raise Finished
        return alone


def _set_by(ambient: Ambient) -> set[str]:
    """Return the torch settings that a state changes."""
    return {line.partition(" = ")[0] for line in ambient.settings}
