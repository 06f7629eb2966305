"""tcdebug explain"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.cli.script_argument import script_hint
from tcdebug.compiler.errors import codes
from tcdebug.display.console import error, note, write
from tcdebug.display.explanation import show_code, show_explanation
from tcdebug.minifier.processes.job import UnknownBackend
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_explanation
from tcdebug.supervision.eager_failures import print_script_problem
from tcdebug.supervision.explaining import begin_explaining, explained
from tcdebug.supervision.foreground import ending, refused


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
    if print_script_problem(script):
        return 1
    supervisor = begin_explaining(script, args, backend)
    try:
        result = explained(supervisor)
    except UnknownBackend as problem:
        return refused(supervisor, problem)
    found = result.found
    if style == "json":
        write(msgspec.json.encode(found).decode() + "\n")
    elif style != "full":
        write(FORMATS[style](*of_explanation(found)))
    elif found.frames or found.failures or found.breaks:
        show_explanation(found)
    if result.ended:
        error("TCD013", ending(result.ended, result.log), f"its output is in {result.log}")
        note("the explanation covers the time before that")
    elif not found.frames:
        error(
            "TCD012",
            f"{script} compiles no graph",
            "check that it calls torch.compile, and calls the result",
        )
    return result.exit_status


def _code(name: str, *, as_json: bool) -> int:
    """Explain a code; 2 if there is no such code."""
    found = codes.find(name)
    if found is None:
        is_code = codes.PATTERN.fullmatch(name.upper())
        hint = f"the codes are {', '.join(c.name for c in codes.CODES)}" if is_code else ""
        error("TCD016", f"no such script or code: {name!r}", hint or script_hint(name))
        return USAGE
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        show_code(found)
    return 0
