"""The cache of shared objects stays within its limit and keeps recently used files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.cache_eviction import STAMP, keep_within
from tcdebug.compiler.runtime.toolchain import find


def filled(folder: Path) -> None:
    """Five objects of ten bytes, the first one used longest ago, and a lock of the same age."""
    (folder / "aa").mkdir(parents=True)
    for age, name in enumerate(("e.so", "d.cpp", "c.so", "b.so", "a.so")):
        path = folder / "aa" / name
        path.write_bytes(b"x" * 10)
        os.utime(path, (1e9 - age, 1e9 - age))
    (folder / "aa" / "a.lock").touch()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("aa/*"))


def test_the_least_recently_used_files_are_removed_down_to_half_the_limit(tmp_path: Path) -> None:
    filled(tmp_path)
    assert keep_within(tmp_path, 40) == 3
    assert left(tmp_path) == ["a.lock", "d.cpp", "e.so"]


def test_nothing_is_removed_below_the_limit(tmp_path: Path) -> None:
    filled(tmp_path)
    assert keep_within(tmp_path, 50) == 0
    assert len(left(tmp_path)) == 6


def test_the_folder_is_counted_once_a_day(tmp_path: Path) -> None:
    filled(tmp_path)
    assert keep_within(tmp_path, 50) == 0
    assert keep_within(tmp_path, 0) == 0
    yesterday = time.time() - 90_000
    os.utime(tmp_path / STAMP, (yesterday, yesterday))
    assert keep_within(tmp_path, 0) == 5


def test_a_hit_counts_as_a_use(tmp_path: Path) -> None:
    toolchain = find("g++")
    source = 'extern "C" int answer() { return 42; }\n'
    build(source, toolchain, tmp_path)
    (path,) = tmp_path.rglob("*.so")
    os.utime(path, (1e9, 1e9))
    build(source, toolchain, tmp_path)
    assert path.stat().st_mtime > 1.5e9
