"""Limits the size of the cache of built kernels by removing the least recently used files."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

SUFFIXES = (".so", ".cpp")
"""The files that are counted and removed. Locks and unfinished builds are not."""
INTERVAL = 86400.0
"""Seconds between two counts, because counting many files takes a while."""
STAMP = ".looked"
"""The file whose modification time is that of the last count."""


def keep_within(folder: Path, most: int) -> int:
    """Remove the least recently used files if a folder has more than `most` bytes.

    Returns the number of removed files. Does nothing within `INTERVAL` seconds of the last count.
    Removes files down to half of `most`, so that the next count finds little to do. Another process
    may remove the same files, or need a removed one, which it then builds again.
    """
    if not _is_due(folder / STAMP):
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


def _is_due(stamp: Path) -> bool:
    with contextlib.suppress(OSError):
        if stamp.exists() and time.time() - stamp.stat().st_mtime < INTERVAL:
            return False
        stamp.touch()
        return True
    return False
