"""tcdebug cache"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.display.console import results
from tcdebug.display.tables import show_table
from tcdebug.output.structures import CachePart, CacheState

DAY = 86400.0
LOCK = ".lock"


def run(*, clear: bool, older_than: float, as_json: bool) -> int:
    """Show the cache or empty it. Return the exit status 0."""
    folder = Options.from_env().cache_dir
    removed = _clear(folder, time.time() - older_than * DAY) if clear else []
    parts = list(_parts(folder))
    if as_json:
        found = CacheState(str(folder), parts, len(removed), sum(removed))
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return 0
    if clear:
        results().print(f"removed {len(removed)} files, {_size(sum(removed))}")
    rows = [(p.name, str(p.files), _size(p.bytes), _day(p.newest)) for p in parts]
    show_table([str(folder), "files", "size", "newest"], rows)
    return 0


def _parts(folder: Path) -> Iterator[CachePart]:
    for part in sorted(p for p in folder.glob("*") if p.is_dir()):
        stats = [f.stat() for f in _files(part)]
        newest = max((s.st_mtime for s in stats), default=0.0)
        yield CachePart(part.name, len(stats), sum(s.st_size for s in stats), newest)


def _files(folder: Path) -> Iterator[Path]:
    """Yield files that may be removed while other processes build: no locks, no partial files."""
    for path in folder.rglob("*"):
        building = any(part.startswith(".build-") for part in path.parts)
        if path.is_file() and path.suffix != LOCK and not building:
            yield path


def _clear(folder: Path, before: float) -> list[int]:
    """Remove files last written before a time; return their sizes."""
    removed: list[int] = []
    for path in list(_files(folder)):
        stat = path.stat()
        if stat.st_mtime <= before:
            path.unlink(missing_ok=True)
            removed.append(stat.st_size)
    return removed


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "-"
