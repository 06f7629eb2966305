"""tcdebug logs rm"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from tcdebug.cli.options import USAGE
from tcdebug.compiler.events import run_folder
from tcdebug.display.console import error, note
from tcdebug.reading.run_dir import NoRun, Run, named, runs

DAY = 86400.0


def run(*, run_names: Sequence[str], healthy: bool, older_than: float | None) -> int:
    """Remove the named runs, or all that match; 2 if there is none, or one is in progress."""
    try:
        chosen = [named(name) for name in run_names]
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls lists the runs")
        return USAGE
    if not run_names:
        if not healthy and older_than is None:
            error("TCD001", "no run is given", "give a RUN, --healthy or --older-than")
            return USAGE
        before = time.time() - DAY * (older_than or 0.0)
        fitting = [r for r in runs() if r.info.started <= before]
        chosen = [r for r in fitting if not healthy or run_folder.is_healthy(r.path)]
        chosen = [r for r in chosen if not run_folder.is_alive(r.info.pid)]
    busy = [r.path.name for r in chosen if run_folder.is_alive(r.info.pid)]
    if busy:
        error("TCD001", f"{', '.join(busy)} is still in progress", "stop it, or wait until it ends")
        return USAGE
    _remove(chosen)
    note(f"removed {len(chosen)} run{'s' * (len(chosen) != 1)}")
    return 0


def _remove(chosen: Sequence[Run]) -> None:
    for found in chosen:
        latest = found.path.parent / "latest"
        if latest.is_symlink() and latest.resolve() == found.path.resolve():
            latest.unlink()
        shutil.rmtree(found.path)
