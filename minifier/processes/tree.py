"""The processes that descend from one, as /proc has them at one moment."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

STATE, PARENT, SESSION, STARTED = 0, 1, 3, 19
"""Places in /proc/PID/stat behind the name of the program, see proc_pid_stat(5)."""
ZOMBIE = b"Z"


@dataclass(frozen=True)
class Process:
    """A process. Two are equal that have the same number and began at the same time."""

    pid: int
    started: int
    """Clock ticks after the start of the machine."""
    parent: int = field(compare=False)
    session: int = field(compare=False)


Snapshot = Mapping[int, Process]


def snapshot() -> Snapshot:
    """All processes that have not ended, by number."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := process(pid))}


def process(pid: int) -> Process | None:
    """A process, None where there is none or it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[STATE] == ZOMBIE:
        return None
    started, parent, session = (int(fields[place]) for place in (STARTED, PARENT, SESSION))
    return Process(pid, started, parent, session)


def descendants(root: int, processes: Snapshot) -> set[Process]:
    """Those that descend from a process, and what is left of the session that it leads."""
    children: dict[int, list[Process]] = {}
    for one in processes.values():
        children.setdefault(one.parent, []).append(one)
    found: set[Process] = set()
    waiting = [*children.get(root, ()), *(p for p in processes.values() if p.session == root)]
    while waiting:
        one = waiting.pop()
        if one.pid != root and one not in found:
            found.add(one)
            waiting += children.get(one.pid, ())
    return found


def kill_descendants(
    root: int, known: Collection[Process] = (), *, remove_unfinished: bool = False
) -> None:
    """Kill all that descends from a process, also what has left its group.

    `known` are processes that have descended from it earlier. With `remove_unfinished`, the files
    that compilers among them are writing are removed: the next to use one would take a part for the
    whole. Files that this process has open, or that Python processes write, are the user's.
    """
    stopped = list(_stopped(root, known))
    if remove_unfinished:
        written = {path for one in stopped for path in _written_by_compiler(one.pid)}
        for path in written - set(_open_for_writing(os.getpid())):
            path.unlink(missing_ok=True)  # while a lock on it is still held
    for one in stopped:
        send_signal(one.pid, signal.SIGKILL)


def send_signal(pid: int, number: signal.Signals, *, group: bool = False) -> None:
    """Send a signal to a process, or to the group that it leads, if it is there and ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def _stopped(root: int, known: Collection[Process]) -> Iterator[Process]:
    """Stop what descends from a process. What has stopped starts nothing, so this ends."""
    seen: set[Process] = set()
    while fresh := _members(root, known, snapshot()) - seen:
        for one in fresh:
            send_signal(one.pid, signal.SIGSTOP)
        seen |= fresh
        yield from fresh


def _members(root: int, known: Collection[Process], processes: Snapshot) -> set[Process]:
    """What descends from a process, and from those known that are still there."""
    there = {one for one in known if processes.get(one.pid) == one}
    return there.union(*(descendants(pid, processes) for pid in (root, *(p.pid for p in there))))


def _written_by_compiler(pid: int) -> Iterator[Path]:
    """The files that a process writes, unless it runs the Python that this process runs."""
    with contextlib.suppress(OSError):
        if not Path(f"/proc/{pid}/exe").samefile("/proc/self/exe"):
            yield from _open_for_writing(pid)


def _open_for_writing(pid: int) -> Iterator[Path]:
    """The files that a process has open for writing, besides its standard streams."""
    with contextlib.suppress(psutil.Error):
        for file in psutil.Process(pid).open_files():
            if file.fd > 2 and file.mode != "r":
                yield Path(file.path)
