"""Keeps a folder of files that can be made again within a number of bytes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

SUFFIXES = (".so", ".cpp")
"""What is counted and removed: not locks, nor what is being built."""
BETWEEN = 86400.0
"""Seconds between two looks: counting many files takes a while."""
LOOKED = ".looked"


def keep_within(folder: Path, most: int) -> int:
    """Remove what was used longest ago, if it is time to look; how many files went.

    Half of the room is made free, so that the next look finds little to do. Another process may
    remove the same files, or use one that goes: it builds that again.
    """
    if not _time_to_look(folder / LOOKED):
        return 0
    files: list[tuple[float, int, Path]] = []
    for path in folder.glob("*/*"):
        if path.suffix in SUFFIXES:
            with contextlib.suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
    total, removed = sum(size for _, size, _ in files), 0
    if total <= most:
        return 0
    for _, size, path in sorted(files):
        with contextlib.suppress(OSError):
            path.unlink()
        total, removed = total - size, removed + 1
        if total <= most // 2:
            break
    return removed


def _time_to_look(stamp: Path) -> bool:
    with contextlib.suppress(OSError):
        if stamp.exists() and time.time() - stamp.stat().st_mtime < BETWEEN:
            return False
        stamp.touch()
        return True
    return False
