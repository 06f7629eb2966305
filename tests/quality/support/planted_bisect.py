"""Runs `tcdebug bisect` on a model with a planted bug, and checks its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEFT = 5
"""The maximum number of nodes that may be left."""
CONFIRMED_FAILURE = {
    "exception": "exception",
    "wrong": "wrong",
    "segfault": "crash",
    "hang": "hang",
}
"""The kind of failure in a report, by kind of planted bug."""


def arguments(unit: str, kind: str, blocks: int, script: Path) -> list[str]:
    """A script and its arguments: a bug of this kind planted in this unit."""
    return ["--timeout", "25", str(script), unit, kind, str(blocks)]


def command(arguments: Sequence[str]) -> list[str]:
    """The command line that bisects a script."""
    options = ["--json", "--quiet", "--script-seconds", "0"]
    return [sys.executable, "-m", "tcdebug", "bisect", *options, *arguments]


def report_of(folder: Path, arguments: Sequence[str]) -> Any:
    """The report about a script that runs in a folder. Kernels are kept where all tests do."""
    caches = "TCDEBUG_CACHE_DIR"
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_") or k == caches}
    done = subprocess.run(
        command(arguments),
        cwd=folder,
        # one thread: several of these run in parallel, and waiting threads spin
        env={**plain, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def bisected(folder: Path, unit: str, kind: str, blocks: int, script: Path) -> Any:
    """The report about a model with this many blocks of about 9 nodes."""
    return report_of(folder, arguments(unit, kind, blocks, script))


def check(report: Any, unit: str, kind: str) -> None:
    """Check that the unit is the culprit, confirmed, in a small graph."""
    assert report["failure"]["kind"] == CONFIRMED_FAILURE[kind]
    assert [c["unit"] for c in report["culprits"]] == [unit]
    assert report["confirmed"] is True
    assert report["nodes_after"] <= LEFT
    assert Path(report["repro"]).exists()
