"""The descendants of a process, and how long they wait for a CPU, read from /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

STATE, PARENT, SESSION, FAULTS, USER, SYSTEM, STARTED = 0, 1, 3, 7, 11, 12, 19
"""Positions in /proc/PID/stat after the name of the program; see proc_pid_stat(5)."""
ZOMBIE = b"Z"
LONGEST_EXIT = 5.0
"""The most seconds to wait until killed processes have ended."""
EXIT_POLL = 0.002
"""Seconds between checks whether they have."""


@dataclass(frozen=True)
class Process:
    """A process. Two are equal if they have the same pid and start time."""

    pid: int
    started: int
    """Clock ticks between the boot of the machine and its start."""
    parent: int = field(compare=False)
    session: int = field(compare=False)
    ticks: int = field(compare=False)
    """Clock ticks of CPU time that it has used."""
    faults: int = field(compare=False)
    """The pages that it was given, also instead of those of its parent that it wrote to."""


Snapshot = Mapping[int, Process]


def snapshot() -> Snapshot:
    """Return all processes that have not ended, by pid."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := process(pid))}


def process(pid: int) -> Process | None:
    """Return a process; None if it does not exist or has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[STATE] == ZOMBIE:
        return None
    started, parent, session = (int(fields[place]) for place in (STARTED, PARENT, SESSION))
    ticks = int(fields[USER]) + int(fields[SYSTEM])
    return Process(pid, started, parent, session, ticks, int(fields[FAULTS]))


def descendants(root: int, processes: Snapshot) -> set[Process]:
    """Return the descendants of a process, and the remaining members of the session it leads."""
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
    """Kill all descendants of a process, including those that left its process group.

    `known` are processes that descended from it earlier. With `remove_unfinished`, files that
    compilers among them are writing are removed, because the next user would take a partial file
    for a whole one. Files that this process has open, or that Python processes write, are kept.

    Returns once all have ended, or after `LONGEST_EXIT` seconds. A process that holds much memory
    takes some time to end after it was killed.
    """
    stopped = list(_stopped(root, known))
    if remove_unfinished:
        written = {path for one in stopped for path in _written_by_compiler(one.pid)}
        for path in written - set(_open_for_writing(os.getpid())):
            path.unlink(missing_ok=True)  # while the writer still holds its lock
    for one in stopped:
        send_signal(one.pid, signal.SIGKILL)
    _await_exits(stopped)


class CpuQueue:
    """How long processes are ready to run while other processes have the CPUs."""

    def __init__(self) -> None:
        self._waited: dict[int, int] = {}

    def waited(self, pids: Iterable[int]) -> float:
        """Return the seconds that the main threads of these processes waited since the last call.

        A process that is new waited since its start.
        """
        now = {pid: waited for pid in pids if (waited := _waited(pid)) is not None}
        fresh = sum(max(0, waited - self._waited.get(pid, 0)) for pid, waited in now.items())
        self._waited = now
        return fresh / 1e9


def _waited(pid: int) -> int | None:
    """Return the nanoseconds that a process has waited for a CPU; None if it is not known."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return None


def send_signal(pid: int, number: signal.Signals, *, group: bool = False) -> None:
    """Send a signal to a process or to the group it leads. Ignore missing and foreign processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def _stopped(root: int, known: Collection[Process]) -> Iterator[Process]:
    """Stop all descendants of a process. Stopped processes start no others, so this terminates."""
    seen: set[Process] = set()
    while fresh := _members(root, known, snapshot()) - seen:
        for one in fresh:
            send_signal(one.pid, signal.SIGSTOP)
        seen |= fresh
        yield from fresh


def _members(root: int, known: Collection[Process], processes: Snapshot) -> set[Process]:
    """Return the descendants of a process, and the known processes that still exist with theirs."""
    there = {one for one in known if processes.get(one.pid) == one}
    return there.union(*(descendants(pid, processes) for pid in (root, *(p.pid for p in there))))


def _await_exits(killed: Collection[Process]) -> None:
    """Wait until killed processes have ended, for at most `LONGEST_EXIT` seconds."""
    end = time.monotonic() + LONGEST_EXIT
    while any(process(one.pid) == one for one in killed) and time.monotonic() < end:
        time.sleep(EXIT_POLL)


def _written_by_compiler(pid: int) -> Iterator[Path]:
    """Yield the files that a process writes, unless it runs the same Python as this process."""
    with contextlib.suppress(OSError):
        if not Path(f"/proc/{pid}/exe").samefile("/proc/self/exe"):
            yield from _open_for_writing(pid)


def _open_for_writing(pid: int) -> Iterator[Path]:
    """Yield the files that a process has open for writing, except its standard streams."""
    with contextlib.suppress(psutil.Error):
        for file in psutil.Process(pid).open_files():
            if file.fd > 2 and file.mode != "r":
                yield Path(file.path)
