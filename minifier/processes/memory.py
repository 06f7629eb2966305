"""Measures the memory of processes without file-backed pages; see proc_pid_smaps(5).

File-backed pages, such as those of libraries, do not count. The kernel drops them when memory runs
short, and a forked child maps those of its parent again when it touches them.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
"""The bytes of a page."""


def resident(pid: int) -> int:
    """Return the resident bytes of a process, shared or not; 0 once it has ended."""
    fields = _fields(f"/proc/{pid}/status")
    return fields.get("RssAnon", 0) + fields.get("RssShmem", 0)


def added(pids: Collection[int], parent: int) -> int:
    """Return the bytes that processes hold together beyond what they share with `parent`.

    A page that several of them share counts once. A shared page is divided among its processes, so
    the part of its pages that is missing from the parent's share is held by the others. If other
    processes share these pages too, the result is too small by their parts. The kernel walks all
    pages for this, which takes tens of milliseconds for a large process.
    """
    own = _fields(f"/proc/{parent}/smaps_rollup")
    inherited = own.get("Anonymous", 0) - own.get("Pss_Anon", 0)
    held = (_fields(f"/proc/{pid}/smaps_rollup") for pid in pids)
    return sum(one.get("Pss_Anon", 0) + one.get("Pss_Shmem", 0) for one in held) - inherited


def _fields(path: str) -> dict[str, int]:
    """Return the sizes in a file of /proc, in bytes; none if the process has ended."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.removesuffix(" kB").split(":") for line in lines if line.endswith(" kB"))
    return {name: int(size) << 10 for name, size in sizes}
