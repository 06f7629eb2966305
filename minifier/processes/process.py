"""Children of this process, forked or spawned: watched, limited, and ended with all they started.

`fork.fork` does work in a child, and `spawn.spawn` runs a command. Both return a `Child`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path

import msgspec

from tcdebug.minifier.processes import memory
from tcdebug.minifier.processes.channel import ANSWER, LARGEST, PATIENCE, PHASE, REPLY, Channel
from tcdebug.minifier.processes.tree import (
    CpuQueue,
    Process,
    Snapshot,
    descendants,
    kill_descendants,
    send_signal,
    snapshot,
)

POLL = 0.05
"""Seconds between checks of children that send nothing, and of memory that is limited."""
SELDOM = 0.5
"""Seconds between checks of the descendants of a child whose memory is not limited."""


OVERRUN = 10.0
"""The seconds by which a run whose limit is what is left of a budget may exceed it, if it waits for
a CPU meanwhile."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of a child: wall seconds, and bytes of memory beyond what its parent has.

    The defaults are those of the first run of a graph, in the commands and in `tcdebug.bisect`.
    Only seconds count during which the parent watches the child. On a busy machine, seconds in
    which it waits for a CPU do not count, up to `excuse`, or else up to as many again. Memory is
    that of the child and all its descendants, without file-backed pages. `silence` is how long the
    child may show no sign of progress, in wall seconds; see `Child.signs`. None means no limit.
    """

    seconds: float = 120.0
    memory: int | None = 8 << 30
    silence: float | None = None
    excuse: float | None = None


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    answer: bytes | None
    """What the work of a forked child returned; None if it did not return."""
    phase: str
    """The last phase that it reported."""
    status: int | None
    """Its exit status; None if a signal or its parent ended it."""
    signal: int
    """The signal that ended it; 0 if it exited or its parent ended it."""
    timed_out: bool
    over_memory: bool
    pid: int
    seconds: float
    """Wall seconds from its start to its end."""
    cpu_seconds: float
    """CPU-seconds of the child and of the descendants that it has waited for."""
    silence: float = 0.0
    """The longest time without a sign of progress, in wall seconds."""
    silenced: bool = False
    """Whether it was ended because it showed no sign of progress."""
    memory: int = 0
    """The most bytes that it was seen to hold beyond `baseline`; 0 if its memory is not limited.

    What it takes from memory that its parent has freed may be missing."""

    @property
    def returncode(self) -> int | None:
        """The return code as in subprocess: negative for a signal. None if its parent ended it."""
        return -self.signal if self.signal else self.status


@dataclass(eq=False)
class Child:
    """A running child, from its parent's point of view."""

    pid: int
    limits: Limits | None
    channel: Channel | None = None
    """The channel to a forked child."""
    fork: Callable[[], int] | None = None
    """The system call that forked it."""
    popen: subprocess.Popen[bytes] | None = None
    """The Popen object of a spawned child, whose return code is set at its end."""
    baseline: int = 0
    """Resident bytes that it shared with its parent when it was forked."""
    leads: bool = True
    """Whether it leads its own session. Other children share the terminal of their parent."""
    signs: Path | None = None
    """A file that grows while it makes progress. Messages are signs of progress too, and so is CPU
    time that its descendants use, such as compilers."""
    phase: str = ""
    answer: bytes | None = None
    reply: bytes | None = None
    timed_out: bool = False
    over_memory: bool = False
    ended: Ended | None = None
    began: float = field(init=False)
    left: float = field(init=False)
    """The seconds that it has left."""
    exit_signal: int | None = field(init=False, default=None)
    """A file descriptor that becomes readable when it exits."""
    _listening: bool = True
    _answered: float | None = None
    """The time at which it sent its answer."""
    _checked: float = 0.0
    """The time at which its memory and its descendants were last checked."""
    _known: set[Process] = field(default_factory=set)
    """Processes that it was seen to start."""
    silence: float = 0.0
    """Seconds since its last sign of progress."""
    silenced: bool = False
    _longest_silence: float = 0.0
    _most_memory: int = 0
    _touched_at_next_sum: int = 0
    """The quick sum of its memory above which the exact one is made; see `_exceeds`."""
    _queue: CpuQueue = field(default_factory=CpuQueue)
    _excused: float = 0.0
    """The seconds that did not count, because it waited for a CPU."""
    _seen: tuple[int, int] = (0, 0)
    """The size of `signs`, and the CPU time of its descendants, when they were last checked."""

    def __post_init__(self) -> None:
        self.began = self._checked = time.monotonic()
        self.left = self.limits.seconds if self.limits else float("inf")
        with contextlib.suppress(OSError):  # without a pidfd it is polled
            self.exit_signal = os.pidfd_open(self.pid)

    def restart_time(self, limits: Limits | None) -> None:
        """Restart its time, under these limits."""
        self.limits = limits
        self.left = limits.seconds if limits else float("inf")
        self._excused = 0.0
        self.began = self._checked = time.monotonic()

    def count_unwatched_time(self) -> None:
        """Count the time since its start against its limit, also while nobody watched it."""
        if self.limits is not None:
            self.left = self.limits.seconds - (time.monotonic() - self.began)

    def ask(self, request: bytes) -> bytes | Ended:
        """Send a request. Return the reply, or how the child ended. Its time limit restarts."""
        if self.ended is not None:
            return self.ended
        assert self.channel is not None
        self.left = self.limits.seconds if self.limits else float("inf")
        self.phase, self.reply, self._excused = "", None, 0.0
        with contextlib.suppress(OSError):  # it has ended or does not listen; see below
            self.channel.send_bytes(request)
        _watch([self], lambda: self.reply is not None)
        if self.reply is not None:
            return self.reply
        return self.end()

    def end(self) -> Ended:
        """End the child, if it is running, and all that it has started. Return how it ended.

        Files that compilers of a forked child were writing are removed. Processes that a child on
        our terminal left behind when it exited by itself are kept.
        """
        if self.ended is None:
            exited = has_exited(self.pid)
            if self.leads or not exited:
                self._kill()
            code, cpu_seconds = self._reap()
            self._drain()
            self.ended = self._ended(exited, code, cpu_seconds)
            self._close()
        return self.ended

    def _kill(self) -> None:
        """Kill it and all that it has started. It is stopped first, so that it starts no more."""
        send_signal(self.pid, signal.SIGSTOP)
        if self.leads:
            send_signal(self.pid, signal.SIGSTOP, group=True)
        forked = self.popen is None
        kill_descendants(self.pid, self._known, remove_unfinished=forked)
        if self.leads:
            send_signal(self.pid, signal.SIGKILL, group=True)
        send_signal(self.pid, signal.SIGKILL)

    def so_far(self) -> Ended:
        """Return how it would have ended if it were ended now, for its silence."""
        ended = self._ended(exited=False, code=None, cpu_seconds=0.0)
        return replace(ended, timed_out=True, silenced=True)

    # -- for its watchers -----------------------------------------------------------------------

    @property
    def sources(self) -> list[Channel | int]:
        """The objects that become readable when there is news of the child."""
        if self.ended is not None:
            return []
        channel = [self.channel] if self.channel is not None and self._listening else []
        return [*channel, *([] if self.exit_signal is None else [self.exit_signal])]

    def is_due(self, now: float) -> bool:
        """Return whether it is time to check its memory and its descendants."""
        limited = self.limits is not None and self.limits.memory is not None
        if not self.leads and not limited:
            return False
        return now - self._checked > (POLL if limited else SELDOM)

    def check(self, spent: float, ready: Collection[object], processes: Snapshot | None) -> bool:
        """Read its messages and check its limits. Return whether it has exited or must end."""
        counted = spent - self._excuse(spent)
        self.left -= counted
        self.silence += counted
        self._longest_silence = max(self._longest_silence, self.silence)
        if self.channel in ready:
            self._receive()
            self.silence = 0.0
        if has_exited(self.pid):
            return True
        if self._answered is not None:
            return time.monotonic() - self._answered > PATIENCE
        if self.left < 0:
            self.timed_out = True
        elif processes is not None and self.is_due(time.monotonic()):
            self._check_processes(processes)
        return self.timed_out or self.over_memory

    def _excuse(self, spent: float) -> float:
        """Return how much of the time that has passed does not count against the limits."""
        if self.limits is None:
            return 0.0
        waited = self._queue.waited([self.pid, *(one.pid for one in self._known)])
        most = self.limits.seconds if self.limits.excuse is None else self.limits.excuse
        excused = min(waited, spent, most - self._excused)
        self._excused += excused
        return excused

    def _check_processes(self, processes: Snapshot) -> None:
        self._checked = time.monotonic()
        tree = descendants(self.pid, processes)
        self._known |= tree
        self._look_for_signs(tree)
        limit = self.limits.memory if self.limits is not None else None
        if limit is not None and self.pid in processes:
            self.over_memory = self._exceeds(limit, [processes[self.pid], *tree])

    def _look_for_signs(self, tree: Collection[Process]) -> None:
        grown = 0
        if self.signs is not None:
            with contextlib.suppress(OSError):  # it has not written anything yet
                grown = self.signs.stat().st_size
        seen = grown, sum(one.ticks for one in tree)
        if seen != self._seen:
            self._seen, self.silence = seen, 0.0
        allowed = self.limits.silence if self.limits is not None else None
        if allowed is not None and self.silence > allowed:
            self.timed_out = self.silenced = True

    def _exceeds(self, limit: int, members: Collection[Process]) -> bool:
        """Return whether processes hold more memory beyond what they share with ours than allowed.

        The exact sum takes long, so a quick one decides when it is made: what they hold beyond
        `baseline`, and the pages that they were given. A page of ours that they write to, such as
        one that we have freed, is only among the latter. The exact sum is made again once they may
        have taken half of what was left.
        """
        pids = [one.pid for one in members]
        held = sum(map(memory.resident, pids)) - self.baseline
        self._most_memory = max(self._most_memory, held)
        touched = max(0, held) + memory.PAGE * sum(one.faults for one in members)
        if touched <= max(limit, self._touched_at_next_sum):
            return False
        exact = memory.added(pids, os.getpid())
        self._most_memory = max(self._most_memory, exact)
        self._touched_at_next_sum = touched + (limit - exact) // 2
        return exact > limit

    def _receive(self) -> None:
        """Read one message. Stop listening to a child that closes its end or stops halfway."""
        assert self.channel is not None
        try:
            message = self.channel.recv_bytes(LARGEST)
        except (EOFError, OSError):
            self._listening = False
            return
        kind, content = message[:1], message[1:]
        if kind == PHASE:
            self.phase = content.decode(errors="replace")
        elif kind == REPLY:
            self.reply = content
        elif kind == ANSWER:
            self.answer, self._answered = content, time.monotonic()

    def _drain(self) -> None:
        """Read what it sent before it ended."""
        end = time.monotonic() + PATIENCE
        while self.channel is not None and self._listening and time.monotonic() < end:
            if not self.channel.poll():
                return
            self._receive()

    def _reap(self) -> tuple[int | None, float]:
        """Reap it. Return its exit code, negative for a signal, and its CPU-seconds."""
        code, cpu_seconds = None, 0.0
        with contextlib.suppress(ChildProcessError):  # the program has already reaped it
            _, status, usage = os.wait4(self.pid, 0)
            code, cpu_seconds = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if self.popen is not None:
            self.popen.returncode = code or 0  # so that subprocess does not wait for it
        return code, cpu_seconds

    def _ended(self, exited: bool, code: int | None, cpu_seconds: float) -> Ended:
        if self.timed_out or self.over_memory or (not exited and code == -signal.SIGKILL):
            code = None
        return Ended(
            answer=self.answer,
            phase=self.phase,
            status=code if code is None or code >= 0 else None,
            signal=-code if code is not None and code < 0 else 0,
            timed_out=self.timed_out,
            over_memory=self.over_memory,
            pid=self.pid,
            seconds=time.monotonic() - self.began,
            cpu_seconds=cpu_seconds,
            silence=self._longest_silence,
            silenced=self.silenced,
            memory=self._most_memory,
        )

    def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        if self.exit_signal is not None:
            os.close(self.exit_signal)
            self.exit_signal = None


def wait(children: Collection[Child], seconds: float = float("inf")) -> list[tuple[Child, Ended]]:
    """Watch children until at least one has ended, or until the time in seconds has passed.

    If interrupted, it ends all children except those on our terminal, which receive Ctrl-C too.
    """
    end = time.monotonic() + seconds
    return _watch(children, lambda: time.monotonic() >= end)


def finished(child: Child) -> Ended:
    """Watch a child until it ends."""
    ((_, ended),) = wait([child])
    return ended


def has_exited(pid: int) -> bool:
    """Return whether a child of this process has exited, or is no longer its child."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _watch(children: Collection[Child], enough: Callable[[], bool]) -> list[tuple[Child, Ended]]:
    checked = time.monotonic()
    try:
        while True:
            sources = [source for child in children for source in child.sources]
            ready = connection.wait(sources, POLL)
            now = time.monotonic()
            spent, checked = now - checked, now
            processes = snapshot() if any(child.is_due(now) for child in children) else None
            over = [child for child in children if child.check(spent, ready, processes)]
            if over or enough():
                return [(child, child.end()) for child in over]
    except BaseException:
        for child in children:
            if child.leads:
                child.end()
        raise
