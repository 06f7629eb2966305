"""The file that is in a graph's folder while the graph is at work, and who left one behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

RUNNING = "running"


def mark(repro: Path, pid: int, phase: str) -> None:
    """Say that a process is at work on the graph of a repro."""
    repro.with_name(RUNNING).write_text(f"{pid} {phase}\n")


def unmark(repro: Path) -> None:
    """Say that nothing is at work on it any more."""
    repro.with_name(RUNNING).unlink(missing_ok=True)


def left_running(folder: Path) -> Iterator[Path]:
    """The repros of a run folder whose graphs were at work when their processes ended."""
    for file in sorted((folder / "graphs").glob(f"*/{RUNNING}")):
        if _ended(int(file.read_text().partition(" ")[0])):
            yield file.with_name("repro.py")


def _ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
