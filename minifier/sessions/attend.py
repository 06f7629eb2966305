"""The process that runs a user's script and watches or writes down its graphs.

`python -m tcdebug.minifier.sessions.attend request.json` runs the script as `python script.py args`
would. What becomes of its graphs is in the events of the run folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import ConfigSnapshot
from tcdebug.minifier.capture.capture import Capture
from tcdebug.minifier.capture.interception import backward_watched, compile_patched
from tcdebug.minifier.capture.watcher import Watcher
from tcdebug.minifier.cases.settings import assignments
from tcdebug.minifier.processes.isolation import die_with_parent
from tcdebug.minifier.processes.request import Request
from tcdebug.minifier.processes.subprocess_hook import followed
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.sessions.session import leave, run_script
from tcdebug.minifier.trace.torch_trace import traced


def attended(request: Request, patches: contextlib.ExitStack, pid: int = 0) -> None:
    """Put what the request asks for between the script and its backends.

    With `pid` this is a process that the script has started: what it leaves has its number.
    """
    folder = Path(request.run_dir)
    log = EventLog(folder)
    script = Script.running() if pid else Script(request.script, tuple(request.args))
    if request.mode == "capture":
        output = Path(request.output) / (str(pid) if pid else "")
        capture = Capture(output, log, request.backend, script, request.graph)
        patches.enter_context(compile_patched(capture.wrap))
        return
    patches.callback(lambda: log.emit(ConfigSnapshot(list(assignments()))))
    if request.mode == "explain":
        patches.enter_context(traced(log))
        if forced := request.backend:
            patches.enter_context(compile_patched(lambda backend: forced))
        return
    watcher = Watcher(folder, log, script, request.check, request.every_call)
    if pid:
        watcher.journal.pid = 0
    patches.callback(watcher.journal.close)
    patches.enter_context(traced(log))
    patches.enter_context(backward_watched(watcher.backward_failed))
    chosen = request.backend
    patches.enter_context(compile_patched(lambda backend: watcher.wrap(chosen or backend)))


def attend_child(request: Request, patches: contextlib.ExitStack) -> None:
    """The same in a process that the script has started, until that ends."""
    if request.graph is None:  # graphs are counted in the script's own process
        attended(request, patches, os.getpid())
        atexit.register(patches.close)


def main() -> NoReturn:
    """Do what the request asks whose file is the only argument."""
    die_with_parent()
    request = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Request)
    os.environ["TCDEBUG_SESSION"] = "1"
    with contextlib.ExitStack() as patches:
        attended(request, patches)
        patches.enter_context(followed(f"attend:{sys.argv[1]}", Path(request.run_dir)))
        status = run_script(request.script, request.args)
    leave(status)


if __name__ == "__main__":
    main()
