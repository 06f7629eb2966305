"""with tcdebug.watch(): whatever fails in a compiled graph leaves a repro."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tcdebug.api.notebook import Recorded
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.running import left_running
from tcdebug.minifier.capture.watcher import Watcher
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.targets.interception import backward_watched, compile_patched
from tcdebug.minifier.trace.torch_trace import traced
from tcdebug.reading.run_dir import find

RUN_DIR = "TCDEBUG_RUN_DIR"


class Watched(Recorded):
    """What a block has compiled, and the scripts that failures in it left."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(find(str(watcher.folder)))
        self._watcher = watcher

    @property
    def repros(self) -> list[Path]:
        """The repro scripts, complete when the block has ended."""
        return self._watcher.repros


@contextmanager
def _events_in(path: Path) -> Iterator[None]:
    """Where the embedded compiler writes its events, here and in processes that are started."""
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
    """Watch every torch.compile of any backend that is made inside the block.

    What it compiles is in the run folder, as `tcdebug run` has it: in a notebook the object that
    the block gets is drawn as a report, and `diff("lower")` of it as the graph before and after.

    An exception in a compile or in a compiled graph leaves a repro script; with `check`, so does a
    result that differs from eager's. Its path is in `repros` of the object that the block gets,
    and is printed when the block ends.

    What ends the whole process leaves one too: it lies ready, in `folder` (a run folder) under
    graphs/, while a graph compiles or first runs; with `every_call` whenever a graph runs, with the
    inputs of that very call.
    """
    path = folder or run_folder.create("watch")
    log = EventLog(path, own=folder is None)
    watcher = Watcher(path, log, Script.running(), check, every_call)
    try:
        with (
            compile_patched(watcher.wrap, log),
            backward_watched(watcher.backward_failed, log),
            traced(log),
            _events_in(path),
        ):
            yield Watched(watcher)
    finally:
        watcher.journal.close()
        watcher.repros += [p for p in left_running(path) if p not in watcher.repros]
        announce_repros(watcher.repros, run=not watcher.interrupted)
