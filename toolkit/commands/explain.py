"""tcdebug explain"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.commands.run import status_of
from tcdebug.compiler.errors import codes
from tcdebug.display.console import error, note, write
from tcdebug.display.explanation import show_code, show_explanation
from tcdebug.minifier.processes.job import Job, start_in_foreground
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_explanation
from tcdebug.reading.explanation import Explanation, explain
from tcdebug.reading.run_dir import find
from tcdebug.supervision.refusal import backend_missing, refused
from tcdebug.supervision.supervisor import begin

SCRIPT_LOG = "script.log"
FAILED, NOTHING, INTERRUPTED = 1, 4, 130


def run(
    *,
    script: str,
    args: Sequence[str],
    backend: str | None,
    style: str,
) -> int:
    """Run the script and explain how it was compiled; 1 if it failed, 4 without a graph."""
    if codes.PATTERN.fullmatch(script.upper()) or not Path(script).is_file():
        return _code(script, as_json=style == "json")
    job = Job("explain", script, list(args), "", backend)
    supervisor = begin("explain", job, quiet=True, fresh=True)
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder)}
    child = start_in_foreground(supervisor.job, environment, folder / SCRIPT_LOG)
    status = status_of(child)  # after Ctrl-C, the part before it is explained
    if missing := backend_missing(supervisor):
        return refused(supervisor, missing)
    if status is None:
        status = INTERRUPTED
    run = find(str(folder))
    found = explain(run, run.events())
    supervisor.finish(_exit_status(status, found), healthy=not (status or found.failures))
    if style == "json":
        write(msgspec.json.encode(found).decode() + "\n")
    elif style != "full":
        write(FORMATS[style](*of_explanation(found)))
    elif found.frames or found.failures or found.breaks:
        show_explanation(found)
    if status:
        _say_how_it_ended(status, folder)
        return INTERRUPTED if status == INTERRUPTED else FAILED
    if not found.frames:
        error(
            "TCD012",
            f"{script} compiles no graph",
            "check that it calls torch.compile, and calls the result",
        )
        return NOTHING
    return 0


def _exit_status(status: int, found: Explanation) -> int:
    """The exit status of the command, given that of the script."""
    if status:
        return INTERRUPTED if status == INTERRUPTED else FAILED
    return 0 if found.frames else NOTHING


def _code(name: str, *, as_json: bool) -> int:
    """Explain a code; 2 if there is no such code."""
    found = codes.find(name)
    if found is None:
        error("TCD016", f"no such script or code: {name!r}")
        return USAGE
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        show_code(found)
    return 0


def _say_how_it_ended(status: int, folder: Path) -> None:
    text = (folder / SCRIPT_LOG).read_text(errors="replace").strip()
    last = text.rpartition("\n")[2]
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    error(
        "TCD013",
        f"the script ended with {how}: {last[:200]}",
        f"its output is in {folder / SCRIPT_LOG}",
    )
    note("the explanation covers the time before that")
