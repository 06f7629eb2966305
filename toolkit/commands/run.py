"""tcdebug run"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.cli.termination import INTERRUPTED
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.display.console import error, note, write
from tcdebug.display.findings.guards import show_missing_guards
from tcdebug.display.profile import show_profile
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.watching.running import left_running
from tcdebug.minifier.investigation.eager_report import IN_ONE_PROCESS
from tcdebug.minifier.processes.job import (
    NO_BACKEND,
    SCRIPT_FAILED,
    Job,
    UnknownBackend,
    start_in_foreground,
)
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_run
from tcdebug.reading.checks import checks
from tcdebug.reading.run_dir import find
from tcdebug.supervision.eager_failures import print_script_problem
from tcdebug.supervision.environment import disabled
from tcdebug.supervision.foreground import backend_missing, refused, status_of
from tcdebug.supervision.profiled_script import begin_profiling, profiled
from tcdebug.supervision.recorded_graphs import fallbacks, nothing_captured, why_no_graph
from tcdebug.supervision.supervisor import Supervisor, begin

COMPILES_NOTHING = "check that it calls torch.compile or inductor, and calls the result"
LOADED = re.compile(r"aoti_load|\baot_load\b")
OF_ANOTHER_RUN = (
    "a package of AOTInductor is observed where it is made: run the script that makes it and the "
    f"one that loads it in one process, with {IN_ONE_PROCESS}"
)
CHECK_FAILED = 1
NOTHING_CHECKED = {
    "results": "nothing was compared: no captured graph was called",
    "guards": "no call was checked: none could reuse a graph",
}
"""What is said of a check that compared nothing."""


def run(
    *,
    script: str,
    args: Sequence[str],
    backend: str | None,
    off: Sequence[str],
    check: str | None,
    every_call: bool,
    profile: bool,
    steps: int,
    as_json: bool,
    quiet: bool,
    output: Path | None = None,
    style: str | None = None,
) -> int:
    """Run the script and watch its graphs, or profile them. Return the exit status."""
    if print_script_problem(script):
        return 1
    if output is not None and not os.access(output.absolute().parent, os.W_OK):
        error("TCD004", f"cannot write {output}", "give -o a file in a writable folder")
        return USAGE
    if profile:
        supervisor = begin_profiling(script, args, backend, steps, notes=not quiet)
        return _profile(supervisor, off, as_json=as_json)
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
    status = status_of(child, supervisor.job)
    if missing_backend := backend_missing(supervisor):
        return refused(supervisor, missing_backend)
    if status is None:
        supervisor.finish(INTERRUPTED, healthy=False)
        _write_failures(output, style, supervisor, INTERRUPTED)
        announce_repros(_repros(folder), hints=not quiet, run=False)
        return INTERRUPTED
    repros, missing = _repros(folder), _missing_guards(folder)
    ending = _exit_status(status, bool(repros or missing))
    supervisor.finish(ending, healthy=ending == 0)
    _write_failures(output, style, supervisor, ending)
    for line in (*fallbacks(folder), *_unasked(off, folder)):
        note(line)
    for line in _checks(check, folder):
        note(line)
    announce_repros(repros, hints=not quiet)
    show_missing_guards(missing)
    return ending


def _write_failures(
    output: Path | None, style: str | None, supervisor: Supervisor, status: int
) -> None:
    """Write what failed to the file of -o."""
    if output is None:
        return
    folder = supervisor.folder
    records = find(str(folder)).events()
    found = of_run(records, _repros(folder), supervisor.job.script, status)
    output.write_text(FORMATS[style or "concise"](*found))


def without_graphs(script: str) -> str:
    """Say what to do about a script that called no compiled graph."""
    text = Path(script).read_text(errors="replace")
    return OF_ANOTHER_RUN if LOADED.search(text) else COMPILES_NOTHING


def _profile(supervisor: Supervisor, off: Sequence[str], *, as_json: bool) -> int:
    """Profile the script. Return the exit status."""
    try:
        result = profiled(supervisor, off, hidden=as_json)
    except UnknownBackend as problem:
        return refused(supervisor, problem)
    script, folder = supervisor.job.script, supervisor.folder
    for line in (*fallbacks(folder), *_unasked(off, folder)):
        note(line)
    if result.profile is None:
        error("TCD013", f"{script} left no profile: {result.problem or 'it ended too early'}")
    elif not result.measured:
        error("TCD012", f"{script} called no compiled graph", without_graphs(script))
    elif as_json:
        write(msgspec.json.encode(result.profile).decode() + "\n")
    else:
        show_profile(result.profile)
    if result.ended:
        note(f"the script ended with exit status {result.ended}")
    return result.exit_status


def _exit_status(status: int, failed: bool) -> int:
    if status < 0:
        return 128 - status
    if status in (SCRIPT_FAILED, NO_BACKEND):
        return 1
    return status or (CHECK_FAILED if failed else 0)


def _unasked(off: Sequence[str], folder: Path) -> list[str]:
    """Return a line for each toggle that matched nothing in any compile."""
    if not off:
        return []
    from tcdebug.minifier.targets.unit_names import unasked  # noqa: PLC0415 - imports torch

    events = find(str(folder)).events()
    asked = [r["unit"] for r in events if r["event"] in ("decision", "pass") and "unit" in r]
    found = unasked(Toggles.parse(off), asked)
    return [f"--off {name}: no step of this run has this name; {n}" for name, n in found.items()]


def _checks(check: str | None, folder: Path) -> list[str]:
    """Return what --check has compared; why, if it was nothing."""
    if check is None:
        return []
    if check == "results" and nothing_captured(folder):
        return [f"nothing was compared: {(disabled() or [why_no_graph(folder)])[0]}"]
    return checks(find(str(folder)).events()) or [NOTHING_CHECKED[check]]


def _missing_guards(folder: Path) -> list[Mapping[str, Any]]:
    """Return the findings of `--check guards`."""
    events = find(str(folder)).events()
    return [r["data"] for r in events if r["event"] == "guard.missing"]


def _repros(folder: Path) -> list[Path]:
    """Return the repros that failures left, and those of graphs in which a process ended."""
    written = [
        Path(r["data"]["path"]) for r in find(str(folder)).events() if r["event"] == "repro.write"
    ]
    return list(dict.fromkeys(p for p in [*written, *left_running(folder)] if p.exists()))
