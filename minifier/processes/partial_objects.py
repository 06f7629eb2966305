"""Shared objects that a killed compiler left half-written.

Inductor has its compiler write a kernel where it is looked for, and takes one that is there for
whole. What a candidate is writing goes when it is ended (see `process`); this is for what the end
of a whole session left.
"""

from __future__ import annotations

import struct
from pathlib import Path

import psutil

HEADER = struct.Struct("<4s36xQ10xHH2x")
"""Of a 64-bit ELF file: the magic number, and where, how large and how many its sections are."""


def remove_torn(folder: Path) -> list[Path]:
    """Remove the shared objects below a folder that are not whole and that nobody writes."""
    torn = {path for path in folder.rglob("*.so") if not is_whole(path)}
    if torn:
        torn -= _open_files()
    for path in torn:
        path.unlink(missing_ok=True)
    return sorted(torn)


def is_whole(path: Path) -> bool:
    """Whether a shared object reaches to its end: the table of sections is written last."""
    try:
        with path.open("rb") as file:
            start = file.read(HEADER.size)
        size = path.stat().st_size
    except FileNotFoundError:
        return True
    if len(start) < HEADER.size:
        return False
    magic, offset, entry, count = HEADER.unpack(start)
    return bool(magic == b"\x7fELF" and 0 < offset <= size - entry * count)


def _open_files() -> set[Path]:
    """The files that processes which may be looked into have open."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        try:
            found.update(Path(file.path) for file in process.open_files())
        except psutil.Error:
            continue
    return found
