"""tcdebug logs export"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, note, write
from tcdebug.reading.export import chrome_trace, csv_table, json_array, parquet
from tcdebug.reading.run_dir import NoRun, find


def run(*, run_name: str | None, form: str, output: Path | None) -> int:
    """Export a run; 2 if there is none, or the file cannot be written."""
    try:
        found = find(run_name)
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    records = found.events()
    match form:
        case "chrome":
            content = chrome_trace(found, records).encode()
        case "csv":
            content = csv_table(records).encode()
        case "parquet":
            if output is None:
                raise click.UsageError("--format parquet needs -o FILE")
            if find_spec("pyarrow") is None:
                error("TCD010", "pyarrow is not installed", "pip install 'tcdebug[export]'")
                return USAGE
            content = parquet(records)
        case _:
            content = json_array(records).encode()
    if output is None:
        write(content.decode())
        return 0
    try:
        output.write_bytes(content)
    except OSError as problem:
        error("TCD004", f"cannot write {output}: {problem.strerror}")
        return USAGE
    note(f"{output}" + (": open it at https://ui.perfetto.dev" if form == "chrome" else ""))
    return 0
