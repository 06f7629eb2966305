"""The mode `search` in a process that the script has started.

The search runs in that process itself: it judges the process's graphs and investigates the first
that fails. One process at a time does so, because ranks compile the same graphs.
"""

from __future__ import annotations

import os
import sys

import msgspec
import torch

from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.devices.sleeping import Sleeping
from tcdebug.minifier.processes.job import REPORT, SCRIPT_FAILED, Job, Rank
from tcdebug.minifier.processes.threads import Threads
from tcdebug.minifier.repros.fake_group import communicates
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.sessions.execution import Broken, Finished, leave
from tcdebug.minifier.sessions.search import Session
from tcdebug.minifier.targets.backends import Backend


def process_name() -> str:
    """Return a name that distinguishes this process from its siblings."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    own: str = multiprocessing.current_process().name if multiprocessing else "MainProcess"
    if own == "MainProcess":
        own = os.path.basename(sys.argv[0]) or "python"
    rank = os.environ.get("RANK")
    return own if rank is None else f"{own}, rank {rank}"


class ChildSession(Session):
    """The session of a process that the script has started."""

    def __init__(self, job: Job, threads: Threads) -> None:
        super().__init__(job, threads, f"answers-{os.getpid()}.jsonl")
        self.script = Script.running()
        self.others = OtherFailures(self.folder / "other" / str(os.getpid()), self.log)
        self.broken = False
        self.sleeping = Sleeping(lambda: self.sleeping.wake(), self.log)

    def judge(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        """Judge a graph as the session does. The process ends with the first graph that fails."""
        if self.broken:
            return
        if reason := _unfit(case):
            what = f"graph {ordinal} of {process_name()} is not judged in its process"
            self.log.emit(Fallback(what, reason))
            if rank := Rank.of_this_process():
                rank.save(self.folder)
            return
        try:
            super().judge(case, backend, ordinal, call)
        except Finished:
            leave(SCRIPT_FAILED)
        except Broken:
            self.broken = True
            what = f"graphs of {process_name()} are not judged"
            self.log.emit(Fallback(what, "an error in tcdebug"))

    def write(self, report: Report, name: str = REPORT) -> None:
        """Write the report, with a note that names the process."""
        note = f"the graph belongs to a process that the script started: {process_name()}"
        super().write(msgspec.structs.replace(report, notes=[note, *report.notes]), name)


def _unfit(case: Case) -> str:
    """Return why candidates of a graph cannot be forked from this process; empty if they can."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return "its process has initialised CUDA"
    alone = Rank.of_this_process() is not None  # its rank can run without the others
    return "it communicates with other ranks" if alone and communicates(case) else ""
