"""with tcdebug.watch(), and TCDEBUG_REPRO=1: each compiled graph that fails leaves a repro."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tcdebug.api.notebook import Recorded
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.display.console import note
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.watching.running import left_running
from tcdebug.minifier.capture.watching.watched_entries import entries_watched
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.processes.subprocess_hook import VARIABLE as CHILDREN
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.targets.interception import backward_watched, compile_patched
from tcdebug.minifier.trace.torch_trace import traced
from tcdebug.reading.run_dir import find

RUN_DIR = "TCDEBUG_RUN_DIR"
SESSION = "TCDEBUG_SESSION"
"""Is set in processes of tcdebug, which look at graphs themselves."""


class Watched(Recorded):
    """The compiles of a block, and the repros of its failures."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(find(str(watcher.folder)))
        self._watcher = watcher

    @property
    def repros(self) -> list[Path]:
        """The repro scripts, complete when the block has ended."""
        return self._watcher.repros

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended a graph."""
        return self._watcher.interrupted


@contextmanager
def _events_in(path: Path) -> Iterator[None]:
    """Set the folder for events of the embedded compiler, here and in child processes."""
    before = os.environ.get(RUN_DIR)
    os.environ[RUN_DIR] = str(path)
    try:
        yield
    finally:
        os.environ.pop(RUN_DIR)
        if before is not None:
            os.environ[RUN_DIR] = before


@contextmanager
def watch(
    *, check: bool = False, every_call: bool = False, folder: Path | None = None
) -> Iterator[Watched]:
    """Watch every torch.compile in the block, with any backend.

    The compiles are in the run folder, as with `tcdebug run`. In a notebook, the yielded object is
    shown as a report, and its `diff("lower")` as the graph before and after.

    An exception in a compile or in a compiled graph leaves a repro script. With `check`, so does a
    result that differs from eager. The path is in `repros` of the yielded object, and is printed
    when the block ends.

    A failure that ends the whole process leaves a repro too. It is written in advance to graphs/ in
    `folder` (a run folder), while a graph compiles or first runs; with `every_call`, whenever a
    graph runs, with the inputs of that call.
    """
    watched = None
    try:
        with watching(check=check, every_call=every_call, folder=folder) as watched:
            yield watched
    finally:
        if watched is not None:
            announce_repros(watched.repros, run=not watched.interrupted)


@contextmanager
def watching(
    *, check: bool = False, every_call: bool = False, folder: Path | None = None
) -> Iterator[Watched]:
    """Return the same as `watch`, but nothing is run or printed when the block ends."""
    path = folder or run_folder.create("watch")
    path.mkdir(parents=True, exist_ok=True)
    if run_folder.read_info(path) is None:
        run_folder.write_info(path, "watch")
    log = EventLog(path, own=folder is None)
    watcher = Watcher(path, log, Script.running(), check, every_call)
    info = run_folder.read_info(path)
    if info is not None:
        watcher.journal.pid = info.pid  # other processes may write to the same folder
    try:
        with (
            compile_patched(watcher.wrap, log),
            entries_watched(watcher, log),
            backward_watched(watcher.backward_failed, log),
            traced(log),
            _events_in(path),
        ):
            yield Watched(watcher)
    finally:
        watcher.journal.close()
        watcher.repros += [p for p in left_running(path) if p not in watcher.repros]


def watch_until_exit() -> None:
    """Watch every torch.compile of this process from now on, and its child processes.

    The repros are announced when the process ends. A process of tcdebug is left alone.
    """
    if os.environ.get(SESSION) or os.environ.get(CHILDREN):
        return
    watch_for_process = ExitStack()
    given = Options.from_env().run_dir
    watched = watch_for_process.enter_context(watch(folder=given))
    if given is None:
        note(f"watching torch.compile: a graph that fails leaves a repro in {watched.run.path}")
    atexit.register(watch_for_process.close)
