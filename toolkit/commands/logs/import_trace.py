"""tcdebug logs import"""

from __future__ import annotations

import shutil
from pathlib import Path

from tcdebug.cli.options import USAGE
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import RunEnd, RunStart
from tcdebug.display.console import error, note, write
from tcdebug.reading.torch_files import NoTrace, import_files, trace_files


def run(*, source: Path) -> int:
    """Import TORCH_TRACE files as a run and print its folder; 2 if there are none."""
    try:
        files = trace_files(source)
    except NoTrace as problem:
        return _nothing(problem)
    folder = run_folder.create("import")
    log = EventLog(folder, own=True)
    log.emit(RunStart("import", ["import", str(source)], str(Path.cwd())), t_ns=0)
    try:
        records, seconds = import_files(files, log)
    except NoTrace as problem:
        shutil.rmtree(folder)
        return _nothing(problem)
    log.emit(RunEnd(0, seconds), t_ns=round(seconds * 1e9))
    note(f"imported {records} records from {len(files)} files; next  tcdebug logs summary {folder}")
    write(f"{folder}\n")
    return 0


def _nothing(problem: NoTrace) -> int:
    error("TCD007", str(problem), "write one with TORCH_TRACE=trace python script.py")
    return USAGE
