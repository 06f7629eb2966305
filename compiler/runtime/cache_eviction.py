"""Bounds the size of the cache of built kernels, by removing the least recently used files."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

SUFFIXES = (".so", ".cpp")
"""The files that are counted and removed: neither locks nor files that are being built."""
BETWEEN = 86400.0
"""Seconds between two counts: counting many files takes a while."""
LOOKED = ".looked"


def keep_within(folder: Path, most: int) -> int:
    """Remove the least recently used files of a folder above `most` bytes; return how many.

    Does nothing within `BETWEEN` seconds of the last count. Removes down to half of `most`, so that
    the next count finds little to do. Another process may remove the same files, or use one that
    is removed; it then builds that file again.
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
