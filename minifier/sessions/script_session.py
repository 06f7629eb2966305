"""Runs a user's script for a command.

The script runs as `python script.py args` would run it, except that the mode of the job may
intercept the script's backends. The session reports through files in the run folder: events, and a
report if the mode writes one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.investigation.minimised_script import MINIMISE
from tcdebug.minifier.processes.job import Job, Rank, started_marker
from tcdebug.minifier.processes.subprocess_hook import hook_installed
from tcdebug.minifier.repros.fake_group import NoFakeGroup
from tcdebug.minifier.sessions.backend_check import checked
from tcdebug.minifier.sessions.execution import leave, run_script
from tcdebug.minifier.sessions.modes import MODES
from tcdebug.minifier.sessions.one_rank import one_rank
from tcdebug.minifier.targets.interception import compile_patched


def main() -> NoReturn:
    """Do the job in the file that is the only argument."""
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    os.environ["TCDEBUG_SESSION"] = "1"
    if job.mode == MINIMISE:
        from tcdebug.minifier.sessions.script_versions import (  # noqa: PLC0415 - start-up time
            minimise_script,
        )

        started_marker(job, os.getpid()).touch()
        minimise_script(job)
        leave(0)
    with contextlib.ExitStack() as patches:
        if job.rank is not None:
            _alone(job, job.rank, patches)
        MODES[job.mode](job, patches, child=False)
        if job.backend is not None:
            patches.enter_context(compile_patched(checked(job), EventLog(Path(job.run_dir))))
        patches.enter_context(hook_installed(f"{job.mode}:{sys.argv[1]}", Path(job.run_dir)))
        started_marker(job, os.getpid()).touch()
        status = run_script(job.script, job.args)
    leave(status)


def _alone(job: Job, rank: Rank, patches: contextlib.ExitStack) -> None:
    """Run the script as one rank until `patches` are undone. If torch cannot, end the session."""
    os.environ.update(rank.variables)
    log = EventLog(Path(job.run_dir))
    try:
        patches.enter_context(one_rank(rank, log))
    except NoFakeGroup as problem:
        log.emit(Fallback(f"{rank} is not run alone", str(problem)))
        started_marker(job, os.getpid()).touch()
        leave(0)
