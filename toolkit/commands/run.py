"""tcdebug run"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.display.console import note
from tcdebug.display.guards import show_missing_guards
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.running import left_running
from tcdebug.minifier.processes.job import NO_BACKEND, SCRIPT_FAILED, Job, start_in_foreground
from tcdebug.reading.run_dir import find
from tcdebug.supervision.foreground import status_of
from tcdebug.supervision.recorded_graphs import fallbacks
from tcdebug.supervision.refusal import backend_missing, refused
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
    """Run the script and watch its graphs; the exit status."""
    job = Job(
        "watch", script, list(args), "", backend,
        compare=check == "results", guards=check == "guards", every_call=every_call,
    )  # fmt: skip
    supervisor = begin("run", job, quiet=True, fresh=True, notes=not quiet)
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder)}
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    child = start_in_foreground(supervisor.job, environment)
    status = status_of(child)
    if missing_backend := backend_missing(supervisor):
        return refused(supervisor, missing_backend)
    if status is None:
        supervisor.finish(INTERRUPTED, healthy=False)
        announce_repros(_repros(folder), hints=not quiet, run=False)
        return INTERRUPTED
    repros, missing = _repros(folder), _missing_guards(folder)
    ending = _exit_status(status, bool(repros or missing))
    supervisor.finish(ending, healthy=ending == 0)
    for line in (*fallbacks(folder), *_unasked(off, folder)):
        note(line)
    announce_repros(repros, hints=not quiet)
    show_missing_guards(missing)
    return ending


def _exit_status(status: int, failed: bool) -> int:
    if status < 0:
        return 128 - status
    if status in (SCRIPT_FAILED, NO_BACKEND):
        return 1
    return status or (CHECK_FAILED if failed else 0)


def _unasked(off: Sequence[str], folder: Path) -> list[str]:
    """A line for each toggle that matched nothing in any compile."""
    if not off:
        return []
    from tcdebug.minifier.targets.unit_names import unasked  # noqa: PLC0415 - imports torch

    events = find(str(folder)).events()
    asked = [r["unit"] for r in events if r["event"] in ("decision", "pass") and "unit" in r]
    found = unasked(Toggles.parse(off), asked)
    return [f"--off {name}: no step of this run has this name; {n}" for name, n in found.items()]


def _missing_guards(folder: Path) -> list[Mapping[str, Any]]:
    """The findings of `--check guards`."""
    events = find(str(folder)).events()
    return [r["data"] for r in events if r["event"] == "guard.missing"]


def _repros(folder: Path) -> list[Path]:
    """The repros that failures left, and those of graphs in which a process ended."""
    written = [
        Path(r["data"]["path"]) for r in find(str(folder)).events() if r["event"] == "repro.write"
    ]
    return list(dict.fromkeys(p for p in [*written, *left_running(folder)] if p.exists()))
