"""What a process does that a script has started, where the script is searched, rerun or watched.

A search goes on in the child itself: it judges its graphs, and investigates the first that fails,
as the session does. One process at a time does so, for ranks compile the same graphs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback, WorkerStart
from tcdebug.minifier.capture.interception import compile_patched
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job
from tcdebug.minifier.processes.request import Request
from tcdebug.minifier.processes.threads import Threads, one_thread
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.sessions import attend, session
from tcdebug.minifier.targets.backends import EMBEDDED, Backend

ATTEND, OFF = "attend", "off"
"""What a child does besides the modes of a job."""

CHILD = "child"
"""How the purpose of a process that the script started begins, in its event."""

COLLECTIVES = ("c10d", "torch.distributed")
"""Parts of the names of operators that need the other ranks."""

_patches = contextlib.ExitStack()
"""What is in force until the process ends."""


def install(what: str) -> None:
    """Stand between this process, which is about to compile, and its backends.

    `search:JOB`, `eager:JOB` and `compiled:JOB` do as the session of that job, `attend:REQUEST` as
    the process that attends to a script, and `off:` puts TCDEBUG_OFF in force.
    """
    kind, _, path = what.partition(":")
    if kind == OFF:
        from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

        _patches.enter_context(inductor.switched(Options.from_env().toggles, EventLog(None)))
    elif kind == ATTEND:
        request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
        _announce(Path(request.run_dir))
        attend.attend_child(request, _patches)
    else:
        job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
        _announce(Path(job.run_dir))
        _join(job)


def _announce(folder: Path) -> None:
    EventLog(folder).emit(WorkerStart(f"{CHILD} {name()}", os.getpid()))


def _join(job: Job) -> None:
    """Do as the session of a job does."""
    if job.mode != "search":
        wrap = session.wrapper(job, _patches)
    else:
        if EMBEDDED in Path(job.script).read_text(errors="replace"):
            session.warm_up()
        wrap = ChildSession(job, one_thread()).recorder.wrap
    _patches.enter_context(compile_patched(wrap))


def name() -> str:
    """What tells this process from its siblings."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    own: str = multiprocessing.current_process().name if multiprocessing else "MainProcess"
    if own == "MainProcess":
        own = os.path.basename(sys.argv[0]) or "python"
    rank = os.environ.get("RANK")
    return own if rank is None else f"{own}, rank {rank}"


class ChildSession(session.Session):
    """The session of a process that the script has started."""

    def __init__(self, job: Job, threads: Threads) -> None:
        super().__init__(job, threads, f"answers-{os.getpid()}.jsonl")
        self.script = Script.running()
        self.others = OtherFailures(self.folder / "other" / str(os.getpid()), self.log)
        self.broken = False

    def judge(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        """As in the session; the process ends with the first graph that fails."""
        if self.broken:
            return
        if _collective(case):
            what = f"graph {ordinal} of {name()} is judged only as a part of the script"
            self.log.emit(Fallback(what, "it communicates with other ranks"))
            return
        try:
            super().judge(case, backend, ordinal, call)
        except session.Finished:
            session.leave(SCRIPT_FAILED)
        except session.Broken:
            self.broken = True
            self.log.emit(Fallback(f"graphs of {name()} are not judged", "a fault of tcdebug"))

    def write(self, report: Report) -> None:
        """The report, with where it comes from."""
        note = f"the graph is of a process that the script started: {name()}"
        super().write(msgspec.structs.replace(report, notes=[note, *report.notes]))


def _collective(case: Case) -> bool:
    """Whether the graph waits for other ranks: alone it would hang."""
    return any(part in _named(node.target) for node in case.calls for part in COLLECTIVES)


def _named(target: object) -> str:
    return f"{getattr(target, '__module__', '')} {target}"
