"""Shows which runs were removed to make room for a new one."""

from __future__ import annotations

from pathlib import Path

from tcdebug.compiler.configuration.retention import runs_kept
from tcdebug.compiler.events.run_folder import read_info
from tcdebug.display.console import note


def show_removed(folder: Path) -> None:
    """Print which healthy runs were removed when this run folder was created."""
    info = read_info(folder)
    if info is None or not info.removed:
        return
    what = info.removed[0] if len(info.removed) == 1 else f"{len(info.removed)} runs"
    note(
        f"removed {what}: only the {runs_kept()} newest healthy runs are kept "
        "(TCDEBUG_KEEP_RUNS=N keeps N)"
    )
