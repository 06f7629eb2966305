"""The process that runs a user's script and watches or writes down its graphs.

`python -m tcdebug.minifier.attend request.json` runs the script as `python script.py args` would;
what becomes of its graphs is in the events of the run folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from tcdebug.compiler.event_log import EventLog
from tcdebug.minifier.capture import Capture
from tcdebug.minifier.request import Request
from tcdebug.minifier.script_setup import Script
from tcdebug.minifier.session import run_script
from tcdebug.minifier.watcher import Watcher, backward_watched, compile_patched


def attended(request: Request, patches: contextlib.ExitStack) -> None:
    """Put what the request asks for between the script and its backends."""
    folder = Path(request.run_dir)
    log = EventLog(folder)
    script = Script(request.script, tuple(request.args))
    if request.mode == "capture":
        capture = Capture(Path(request.output), log, request.backend, script, request.graph)
        patches.enter_context(compile_patched(capture.wrap))
        return
    watcher = Watcher(folder, log, script, request.check, request.every_call)
    patches.callback(watcher.journal.close)
    patches.enter_context(backward_watched(watcher.backward_failed))
    forced = request.backend
    patches.enter_context(compile_patched(lambda backend: watcher.wrap(forced or backend)))


def main() -> NoReturn:
    """Do what the request asks whose file is the only argument."""
    request = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Request)
    os.environ["TCDEBUG_SESSION"] = "1"
    with contextlib.ExitStack() as patches:
        attended(request, patches)
        status = run_script(request.script, request.args)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
