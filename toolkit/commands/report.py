"""tcdebug report"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, note, write
from tcdebug.reading.run_dir import NoRun
from tcdebug.reading.torch_files import found_or_imported
from tcdebug.report.page import render


def run(*, run_names: Sequence[str], output: Path) -> int:
    """Write the page and print its path; 2 if a run is missing or the file cannot be written."""
    try:
        runs = [found_or_imported(name) for name in run_names or ["latest"]]
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    page = render(runs)
    try:
        output.write_text(page)
    except OSError as problem:
        error("TCD004", f"cannot write {output}: {problem.strerror}")
        return USAGE
    note(f"{len(page) / 1e6:.2f} MB, one file; it contains the code of your graphs and no data")
    write(f"{output}\n")
    return 0
