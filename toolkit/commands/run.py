"""tcdebug run"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from tcdebug.display.report import announce_repros
from tcdebug.minifier.job import SCRIPT_FAILED, Job, start
from tcdebug.run_dir import find
from tcdebug.supervisor import begin

CHECK_FAILED = 1


def run(
    *,
    script: str,
    args: Sequence[str],
    backend: str | None,
    off: Sequence[str],
    check: bool,
    quiet: bool,
) -> int:
    """Run the script watched; the exit status."""
    job = Job("watch", script, list(args), "", backend, list(off), check)
    supervisor = begin("run", job, quiet=True, fresh=True)
    environment = {"TCDEBUG_RUN_DIR": str(supervisor.folder)}
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    process = start(supervisor.job, environment=environment)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        status = process.wait()
        supervisor.finish(130)
        return 130
    repros = _repros(supervisor.folder, crashed=status < 0)
    supervisor.finish(status)
    announce_repros(repros, hints=not quiet)
    return _exit_status(status, bool(repros))


def _exit_status(status: int, failed: bool) -> int:
    if status < 0:
        return 128 - status
    if status == SCRIPT_FAILED:
        return 1
    return status or (CHECK_FAILED if failed else 0)


def _repros(folder: Path, *, crashed: bool) -> list[Path]:
    """The repro scripts that failures left; after a crash also the one that lay ready."""
    written = [
        Path(r["data"]["path"])
        for r in find(str(folder)).events()
        if r["event"] == "repro.write"
    ]
    if crashed:
        written += sorted((folder / "graphs").glob("*/repro.py"))
    return list(dict.fromkeys(p for p in written if p.exists()))
