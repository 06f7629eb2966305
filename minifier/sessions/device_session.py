"""The mode `search` for a script that may initialise CUDA.

A process cannot use CUDA if its parent initialised CUDA before the fork. The session's process
therefore stops when the script is about to initialise CUDA, with everything that the script has set
up until then in force. It never initialises CUDA itself, but forks candidates that do. A child
continues the script, runs the graphs in eager on the device, and hands each over to be judged. When
a graph fails, that child is ended.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import WorkerStart
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.capture.handover import (
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
from tcdebug.minifier.processes.channel import Parent, channel
from tcdebug.minifier.processes.devices.default_devices import DefaultDevices
from tcdebug.minifier.processes.devices.sleeping import Sleeping, driver_is_initialised
from tcdebug.minifier.processes.fork import divided
from tcdebug.minifier.processes.imports import ImportsOfChildren
from tcdebug.minifier.processes.job import (
    FAULT,
    FORKED_BEFORE_CUDA,
    REPORT,
    SCRIPT_ON_DEVICES,
    Job,
)
from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child
from tcdebug.minifier.processes.threads import Threads
from tcdebug.minifier.reduction.details.lift_constants import LiftConstants
from tcdebug.minifier.sessions.execution import Broken, Finished, leave
from tcdebug.minifier.sessions.search import Session
from tcdebug.minifier.sessions.undisturbed import timers_stopped
from tcdebug.minifier.subjects.graph import GraphSubject
from tcdebug.minifier.targets.backends import INDUCTOR, Backend

NEXT = b"next"
"""The request to the script's process for the next graph."""
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
        self.told = False
        self.serving = False
        """Whether this process has stopped before initialising CUDA."""
        self.imports = ImportsOfChildren(self.folder)

    @property
    def suspects_hangs(self) -> bool:
        """Whether the script's process need not be ended before the graph is investigated."""
        return not self.serving

    def judge(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        """Judge a graph in this process, or hand it over to the process that judges."""
        if self.parent is not None:
            with timers_stopped():
                self._hand_over(self.parent, case, backend, ordinal, call)
        elif self._can_fork():
            super().judge(case, backend, ordinal, call)

    def write(self, report: Report, name: str = REPORT) -> None:
        """Write the report, with a note on how candidates reached the device."""
        if self.handed is not None:
            report = msgspec.structs.replace(report, notes=[FORKED_BEFORE_CUDA, *report.notes])
        super().write(report, name)

    # -- the process that continues the script ------------------------------------------------

    def _hand_over(
        self, parent: Parent, case: Case, backend: Backend, ordinal: int, call: int
    ) -> None:
        """Let the other process judge a graph, and wait until it has done so."""
        path = self.folder / f"graph-{ordinal}-{call}.handover"
        try:
            lifted = _without_constants(case)
            write_handover(Handover(lifted, backend, Ambient.current(), ordinal, call), path)
        except NotTransferable as problem:
            self._only_in_the_script(ordinal, problem)
            return
        torch.cuda.empty_cache()
        parent.reply(path.name.encode())
        parent.request()

    def _only_in_the_script(self, ordinal: int, problem: Exception) -> None:
        what = f"graph {ordinal} is judged only as a part of the script"
        self.log.emit(Fallback(what, str(problem)[:2000]))

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
        if reason := _unfit_to_serve():
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
            with self.sleeping.outside_of_call():
                self._serve(Child(pid, None, ours, fork=os.fork))
        self.serving = False
        os.setsid()
        bind()
        ours.close()
        self._continue(defaults)
        self.threads.restore()
        self.log = EventLog(self.folder)
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
            while isinstance(reply := script.ask(NEXT), bytes):
                self._judge_handed(self.folder / reply.decode())
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
        """Set up what compiles for a GPU need, while the script's process initialises CUDA."""
        if self.job.backend not in (None, INDUCTOR):
            return
        from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

        self.recorder.active = False
        inductor.warm_up_for_devices(self.log)
        self.recorder.active = True

    def _judge_handed(self, path: Path) -> None:
        try:
            handed = read_handover(path)
        except NotTransferable as problem:
            self._only_in_the_script(int(path.name.split("-")[1]), problem)
            return
        finally:
            path.unlink(missing_ok=True)
        mine, theirs = (_set_by(a) for a in (Ambient.current(), handed.ambient))
        if gone := mine - theirs:
            reason = f"reset after CUDA was initialised: {', '.join(sorted(gone))}"
            self._only_in_the_script(handed.ordinal, NotTransferable(reason))
            return
        self.handed = handed
        self.warm.add(handed.backend.name)  # a compile here might initialise CUDA
        super().judge(handed.case, handed.backend, handed.ordinal, handed.call)

    def _subject(
        self, backend: Backend, ordinal: int, setup: str, setups: tuple[str, ...]
    ) -> GraphSubject:
        subject = replace(super()._subject(backend, ordinal, setup, setups), wake=self._wake)
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
        a time. If it then fits, the script must be judged as a whole.
        """
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


def _unfit_to_serve() -> str:
    """Return why a script cannot continue in a child of this process; empty if it can.

    CUDA must not be initialised here, so creating a tensor on a default device raises.
    """
    others = set(threading.enumerate()) - {threading.main_thread()}
    if any(not type(thread).__module__.startswith("tqdm") for thread in others):
        return "the script had started threads before it initialised CUDA"
    try:
        torch.empty(0)
    except (RuntimeError, AssertionError):
        return "a mode of the script puts tensors on a device"
    if driver_is_initialised():
        return "CUDA's driver was initialised before, such as by a tensor in pinned memory"
    return ""


def _set_by(ambient: Ambient) -> set[str]:
    """Return the torch settings that a state changes."""
    return {line.partition(" = ")[0] for line in ambient.settings}


def _without_constants(case: Case) -> Case:
    """Return the case in which the tensors that its graph holds are inputs."""
    lifting = LiftConstants()
    edits = lifting.edits(case)
    return (lifting.apply(case, edits) or case) if edits else case
