"""Runs the command on scripts for a GPU in which a fault is planted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

TANH = "lower.aten.tanh.default"

LOWERING = """
import torch
from torch._inductor import lowering
aten = torch.ops.aten

def tanh(x):
    TEXT

lowering.register_lowering(aten.tanh.default, type_promotion_kind=None)(tanh)
"""
"""Replaces inductor's lowering of tanh."""

WRONG = LOWERING.replace("TEXT", "return lowering.lowerings[aten.sin.default](x)")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TCDEBUG_CACHE_DIR": str(folder / "cache")}


def bisected(folder: Path, text: str, *arguments: str) -> Any:
    """Bisect a script and return the report. A whole script is minimised for a minute at most.

    One candidate runs at a time. Of many tests that run beside each other, all wait for the GPU to
    be set up in one process after another.
    """
    (folder / "script.py").write_text(text)
    command = ["tcdebug", "bisect", "--json", "-j", "1", "--script-seconds", "60"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *arguments, "script.py"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout)


def exit_statuses(folder: Path, report: Any) -> list[int]:
    """Return the exit statuses of the commands in a report: the failing one and the passing one."""
    fault = report["faults"][0]
    running = [
        subprocess.Popen(
            [sys.executable, *shlex.split(fault[name])[1:]],
            cwd=report["run_dir"],
            env=environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in ("fails", "passes")
    ]
    return [process.wait() for process in running]
