"""Marks the folder of a graph while the graph is active, and finds marks that were left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

RUNNING = "running"


def mark(repro: Path, pid: int, phase: str) -> None:
    """Mark the graph of a repro as active in a process."""
    written = repro.with_name(f"{RUNNING}-{pid}")
    written.write_text(f"{pid} {phase}\n")
    written.replace(repro.with_name(RUNNING))  # at no moment is a mark empty


def unmark(repro: Path) -> None:
    """Remove the mark."""
    repro.with_name(RUNNING).unlink(missing_ok=True)


def left_running(folder: Path) -> Iterator[Path]:
    """Yield the repros in a run folder whose graphs were active when their processes ended."""
    for file in sorted((folder / "graphs").glob(f"*/{RUNNING}")):
        if _ended(int(file.read_text().partition(" ")[0])):
            yield file.with_name("repro.py")


def _ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
