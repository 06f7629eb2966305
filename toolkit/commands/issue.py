"""tcdebug repro issue"""

from __future__ import annotations

from pathlib import Path

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, note, write
from tcdebug.output.issue import NoFailure, issue, newest
from tcdebug.reading.run_dir import NoRun, find


def run(*, run_name: str | None, output: Path | None) -> int:
    """Write a bug report for the failure of a run; 2 if there is none."""
    try:
        text = newest() if run_name is None else issue(find(run_name))
    except (NoRun, NoFailure) as problem:
        error(
            "TCD009",
            str(problem),
            "find a failure with tcdebug bisect SCRIPT or tcdebug run --check SCRIPT",
        )
        return USAGE
    if output is None:
        write(text)
        return 0
    try:
        output.write_text(text)
    except OSError as problem:
        error(
            "TCD004",
            f"cannot write {output}: {problem.strerror}",
            "give -o a file in an existing folder",
        )
        return USAGE
    note(f"written to {output}: read it before you send it")
    return 0
