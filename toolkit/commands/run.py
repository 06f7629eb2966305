"""tcdebug run"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tcdebug.display.console import note
from tcdebug.display.guards import show_missing_guards
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.running import left_running
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job, start_in_foreground
from tcdebug.reading.run_dir import find
from tcdebug.supervision.supervisor import begin

CHECK_FAILED = 1
INTERRUPTED = 130


def run(
    *,
    script: str,
    args: Sequence[str],
    backend: str | None,
    off: Sequence[str],
    check: str | None,
    every_call: bool,
    quiet: bool,
) -> int:
    """Run the script watched; the exit status."""
    job = Job(
        "watch", script, list(args), "", backend,
        compare=check == "results", guards=check == "guards", every_call=every_call,
    )  # fmt: skip
    supervisor = begin("run", job, quiet=True, fresh=True)
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder)}
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    process = start_in_foreground(supervisor.job, environment)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        stop(process)
        supervisor.finish(INTERRUPTED)
        announce_repros(_repros(folder), hints=not quiet, run=False)
        return INTERRUPTED
    repros = _repros(folder)
    supervisor.finish(status)
    announce_repros(repros, hints=not quiet)
    missing = _missing_guards(folder)
    show_missing_guards(missing)
    return _exit_status(status, bool(repros or missing))


def stop(process: subprocess.Popen[bytes]) -> None:
    """Pass Ctrl-C on, and wait for the script to end as it likes; a second one kills it."""
    try:
        if not sys.stdin.isatty():  # at a terminal the script has had it already
            process.send_signal(signal.SIGINT)
        note("waiting for the script to end; Ctrl-C again kills it")
        process.wait()
    except KeyboardInterrupt:
        process.kill()
        process.wait()


def _exit_status(status: int, failed: bool) -> int:
    if status < 0:
        return 128 - status
    if status == SCRIPT_FAILED:
        return 1
    return status or (CHECK_FAILED if failed else 0)


def _missing_guards(folder: Path) -> list[Mapping[str, Any]]:
    """What `--check guards` found."""
    events = find(str(folder)).events()
    return [r["data"] for r in events if r["event"] == "guard.missing"]


def _repros(folder: Path) -> list[Path]:
    """The repro scripts that failures left, and those of what a process ended in."""
    written = [
        Path(r["data"]["path"])
        for r in find(str(folder)).events()
        if r["event"] == "repro.write"
    ]
    return list(dict.fromkeys(p for p in [*written, *left_running(folder)] if p.exists()))
