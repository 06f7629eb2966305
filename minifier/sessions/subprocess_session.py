"""Installs the session of a Python process that the script has started, at its first compile."""

from __future__ import annotations

import atexit
import contextlib
import os
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import WorkerStart
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.sessions.child_search import process_name
from tcdebug.minifier.sessions.modes import MODES
from tcdebug.minifier.sessions.off import switched

OFF = "off"
"""What a process can do in addition to the modes of a job."""

CHILD = "child"
"""The prefix, in its event, of the purpose of a process that the script started."""


def install(what: str) -> None:
    """Intercept the backends of this process, which is about to compile, until it ends.

    `MODE:JOB` does the same as the session of the job in that file. `off:` applies TCDEBUG_OFF.
    """
    patches = contextlib.ExitStack()
    atexit.register(patches.close)
    mode, _, path = what.partition(":")
    if mode == OFF:
        patches.enter_context(switched(Options.from_env().toggles))
        return
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    purpose = f"{CHILD} {process_name()}"
    EventLog(Path(job.run_dir)).emit(WorkerStart(purpose, os.getpid()))
    MODES[mode](job, patches, child=True)
