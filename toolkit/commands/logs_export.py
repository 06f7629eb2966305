"""tcdebug logs export"""

from __future__ import annotations

from pathlib import Path

from tcdebug.cli_options import USAGE
from tcdebug.display.console import error, note, write
from tcdebug.reading.export import chrome_trace, csv_table, json_array
from tcdebug.run_dir import NoRun, find


def run(*, run_name: str | None, form: str, output: Path | None) -> int:
    """Write a run in another form; 2 where there is none, or the file cannot be written."""
    try:
        found = find(run_name)
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    records = found.events()
    match form:
        case "chrome":
            text = chrome_trace(found, records)
        case "csv":
            text = csv_table(records)
        case _:
            text = json_array(records)
    if output is None:
        write(text)
        return 0
    try:
        output.write_text(text)
    except OSError as problem:
        error("TCD004", f"{output} cannot be written: {problem.strerror}")
        return USAGE
    note(f"{output}" + (": open it at https://ui.perfetto.dev" if form == "chrome" else ""))
    return 0
