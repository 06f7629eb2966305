"""How much memory processes hold that is not a copy of a file, see proc_pid_smaps(5).

Pages of files, such as libraries, are left out: the kernel drops them when memory runs short, and a
forked child maps those of its parent anew as it touches them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def resident(pid: int) -> int:
    """Bytes that a process has in memory, shared with others or not; 0 once it has ended."""
    fields = _fields(f"/proc/{pid}/status")
    return fields.get("RssAnon", 0) + fields.get("RssShmem", 0)


def added(pids: Collection[int], parent: int) -> int:
    """Bytes that processes hold together beyond what they share with `parent`.

    A page that several of them share counts once. Each process has its part of a page that it
    shares, so what the parent lacks of a full share of its own pages is what the others have of
    them. If processes that are not asked about share them too, the answer is too small by the parts
    of those. The kernel walks all pages for this: tens of milliseconds for a large process.
    """
    own = _fields(f"/proc/{parent}/smaps_rollup")
    inherited = own.get("Anonymous", 0) - own.get("Pss_Anon", 0)
    held = (_fields(f"/proc/{pid}/smaps_rollup") for pid in pids)
    return sum(one.get("Pss_Anon", 0) + one.get("Pss_Shmem", 0) for one in held) - inherited


def _fields(path: str) -> dict[str, int]:
    """The sizes in a file of /proc, in bytes; none if its process has ended."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.removesuffix(" kB").split(":") for line in lines if line.endswith(" kB"))
    return {name: int(size) << 10 for name, size in sizes}
