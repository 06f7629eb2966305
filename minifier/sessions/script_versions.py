"""The session that minimises a script: it runs versions of the script in forks of itself."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.investigation.minimised_script import RESULT, TASK, MinimisingTask
from tcdebug.minifier.investigation.script_minimising import ScriptMinimising
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.sessions.execution import run_script
from tcdebug.minifier.sessions.off import switched
from tcdebug.minifier.subjects.protected_files import files_protected
from tcdebug.minifier.targets.inductor.warm import register_before_forks
from tcdebug.minifier.targets.interception import compile_patched


def minimise_script(job: Job) -> None:
    """Minimise the script of a job, and write the result to the run folder."""
    folder = Path(job.run_dir)
    task = msgspec.json.decode((folder / TASK).read_bytes(), type=MinimisingTask)
    register_before_forks()

    def execute(path: Path, version: ScriptText, toggles: Toggles) -> int:
        return _executed(job, path, version, toggles)

    result = ScriptMinimising(job, task, execute, EventLog(folder)).run()
    (folder / RESULT).write_bytes(msgspec.json.encode(result))


def _executed(job: Job, path: Path, version: ScriptText, toggles: Toggles) -> int:
    """Run a version of the script in this process. Return its exit status."""
    if version.alone:
        os.chdir(path.parent)
    else:
        sys.path.insert(1, str(Path(job.script).resolve().parent))
    log = EventLog(None)
    with contextlib.ExitStack() as patches:
        if toggles.texts():  # units that are switched keep compile caches off
            patches.enter_context(switched(toggles, log))
        if (forced := job.backend) is not None:
            patches.enter_context(compile_patched(lambda backend: forced, log))
        patches.enter_context(files_protected([path.parents[1]], log))
        status = run_script(str(path), list(version.args))
    sys.stdout.flush()
    sys.stderr.flush()
    return status
