"""Removes shared objects that a killed compiler left half-written.

Inductor lets its compiler write a kernel directly to its cache path, and treats any file there as
complete. The files that a candidate is writing are removed when it is ended (see `process`). This
module handles what the end of a whole session left.
"""

from __future__ import annotations

import struct
from pathlib import Path

import psutil

HEADER = struct.Struct("<4s36xQ10xHH2x")
"""The magic number of a 64-bit ELF file, and the offset, size and number of its sections."""


def remove_torn(folder: Path) -> list[Path]:
    """Remove incomplete shared objects below a folder, unless a process is writing them."""
    torn = {path for path in folder.rglob("*.so") if not is_whole(path)}
    if torn:
        torn -= _open_files()
    for path in torn:
        path.unlink(missing_ok=True)
    return sorted(torn)


def is_whole(path: Path) -> bool:
    """Return whether a shared object is complete: its section table is written last."""
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
    """Return the files that are open in processes whose files this process may list."""
    found: set[Path] = set()
    for process in psutil.process_iter():
        try:
            found.update(Path(file.path) for file in process.open_files())
        except psutil.Error:
            continue
    return found
