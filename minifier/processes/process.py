"""Children of this process, forked or spawned: watched, limited, and ended with all they started.

`fork.fork` has a piece of work done by a child, `spawn.spawn` runs a command. Both give a `Child`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from multiprocessing import connection

import msgspec

from tcdebug.minifier.processes import memory
from tcdebug.minifier.processes.channel import ANSWER, LARGEST, PATIENCE, PHASE, REPLY, Channel
from tcdebug.minifier.processes.tree import (
    Process,
    Snapshot,
    descendants,
    kill_descendants,
    send_signal,
    snapshot,
)

POLL = 0.05
"""Seconds between looks at children that say nothing, and at memory that is limited."""
SELDOM = 0.5
"""Seconds between looks at what a child has started whose memory is not limited."""


class Limits(msgspec.Struct, frozen=True):
    """What a child may use: wall seconds, and bytes of memory beyond what its parent has.

    Only those seconds count in which the parent watches it. Memory is that of the child and of all
    that descends from it, without pages of files; None sets no limit to it.
    """

    seconds: float = 120.0
    memory: int | None = 8 << 30


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    answer: bytes | None
    """What the work of a forked child returned; None where it did not get there."""
    phase: str
    """The last that it told."""
    status: int | None
    """Its exit status; None where a signal or its parent ended it."""
    signal: int
    """The signal that ended it; 0 where it exited or its parent ended it."""
    timed_out: bool
    over_memory: bool
    pid: int
    seconds: float
    """Wall seconds from its start to its end."""
    cpu_seconds: float
    """Of the child and those of its descendants that it has waited for."""

    @property
    def returncode(self) -> int | None:
        """As subprocess has it: the signal is negative. None where its parent ended it."""
        return -self.signal if self.signal else self.status


@dataclass(eq=False)
class Child:
    """A child at work, as its parent knows it."""

    pid: int
    limits: Limits | None
    channel: Channel | None = None
    """What a forked child speaks over."""
    fork: Callable[[], int] | None = None
    """The system call that forked it."""
    popen: subprocess.Popen[bytes] | None = None
    """A spawned child as subprocess knows it, which is told of its end."""
    baseline: int = 0
    """Resident bytes that it had of its parent's when it was forked."""
    leads: bool = True
    """Whether it leads a session of its own; others have the terminal of their parent."""
    phase: str = ""
    answer: bytes | None = None
    reply: bytes | None = None
    timed_out: bool = False
    over_memory: bool = False
    ended: Ended | None = None
    began: float = field(init=False)
    left: float = field(init=False)
    """Seconds that it may still take."""
    exit_signal: int | None = field(init=False, default=None)
    """A file descriptor that can be read once it has exited."""
    _listening: bool = True
    _answered: float | None = None
    """When it gave its answer."""
    _looked: float = 0.0
    """When its memory and its descendants were last looked at."""
    _known: set[Process] = field(default_factory=set)
    """What it was seen to have started."""

    def __post_init__(self) -> None:
        self.began = self._looked = time.monotonic()
        self.left = self.limits.seconds if self.limits else float("inf")
        with contextlib.suppress(OSError):  # where there are none it is asked every POLL
            self.exit_signal = os.pidfd_open(self.pid)

    def ask(self, request: bytes) -> bytes | Ended:
        """Its reply to a request, or how it ended instead. Its time begins anew."""
        if self.ended is not None:
            return self.ended
        assert self.channel is not None
        self.left = self.limits.seconds if self.limits else float("inf")
        self.phase, self.reply = "", None
        with contextlib.suppress(OSError):  # it has ended, or does not listen: that is seen below
            self.channel.send_bytes(request)
        _watch([self], lambda: self.reply is not None)
        if self.reply is not None:
            return self.reply
        return self.end()

    def end(self) -> Ended:
        """End it if it is still there, with all that it has started; then how it ended.

        What compilers that a forked child had started were writing is removed. A child that has
        our terminal and has exited by itself leaves behind what it likes.
        """
        if self.ended is None:
            exited = has_exited(self.pid)
            if self.leads or not exited:
                self._kill()
            code, cpu_seconds = self._waited_for()
            self._drain()
            self.ended = self._ended(exited, code, cpu_seconds)
            self._close()
        return self.ended

    def _kill(self) -> None:
        """Kill it and all that it has started; it is stopped first, so that it starts no more."""
        send_signal(self.pid, signal.SIGSTOP)
        if self.leads:
            send_signal(self.pid, signal.SIGSTOP, group=True)
        forked = self.popen is None
        kill_descendants(self.pid, self._known, remove_unfinished=forked)
        if self.leads:
            send_signal(self.pid, signal.SIGKILL, group=True)
        send_signal(self.pid, signal.SIGKILL)

    # -- for those who watch it ---------------------------------------------------------------

    @property
    def sources(self) -> list[Channel | int]:
        """What can be read when there is news of it."""
        channel = [self.channel] if self.channel is not None and self._listening else []
        return [*channel, *([] if self.exit_signal is None else [self.exit_signal])]

    def due(self, now: float) -> bool:
        """Whether it is time to look at its memory and its descendants."""
        limited = self.limits is not None and self.limits.memory is not None
        if not self.leads and not limited:
            return False
        return now - self._looked > (POLL if limited else SELDOM)

    def look(self, spent: float, ready: Collection[object], processes: Snapshot | None) -> bool:
        """Hear what it says, look at the clock and at its memory; whether it is at its end."""
        self.left -= spent
        if self.channel in ready:
            self._hear()
        if has_exited(self.pid):
            return True
        if self._answered is not None:
            return time.monotonic() - self._answered > PATIENCE
        if self.left < 0:
            self.timed_out = True
        elif processes is not None and self.due(time.monotonic()):
            self._look_at(processes)
        return self.timed_out or self.over_memory

    def _look_at(self, processes: Snapshot) -> None:
        self._looked = time.monotonic()
        tree = descendants(self.pid, processes)
        self._known |= tree
        limit = self.limits.memory if self.limits is not None else None
        if limit is not None and self.pid in processes:
            self.over_memory = self._is_beyond(limit, [self.pid, *(one.pid for one in tree)])

    def _is_beyond(self, limit: int, pids: Collection[int]) -> bool:
        """Whether processes hold more memory than the limit beyond what they share with ours.

        The sum that is quick to read counts a page for each process that has it.
        """
        most = sum(map(memory.resident, pids)) - self.baseline
        return most > limit and memory.added(pids, os.getpid()) > limit

    def _hear(self) -> None:
        """Take a message; a child that closes its end or stops within one is not heard again."""
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
        """Hear what it said before it ended."""
        end = time.monotonic() + PATIENCE
        while self.channel is not None and self._listening and time.monotonic() < end:
            if not self.channel.poll():
                return
            self._hear()

    def _waited_for(self) -> tuple[int | None, float]:
        """Its exit code, negative for a signal, and CPU seconds."""
        code, cpu_seconds = None, 0.0
        with contextlib.suppress(ChildProcessError):  # the program has waited for any child
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
        )

    def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        if self.exit_signal is not None:
            os.close(self.exit_signal)
            self.exit_signal = None


def wait(children: Collection[Child], seconds: float = float("inf")) -> list[tuple[Child, Ended]]:
    """Watch children until one has ended, or more, or so many seconds have passed.

    Interrupted, it ends them all but those that have our terminal: they have heard Ctrl-C too.
    """
    end = time.monotonic() + seconds
    return _watch(children, lambda: time.monotonic() >= end)


def finished(child: Child) -> Ended:
    """Watch a child to its end."""
    ((_, ended),) = wait([child])
    return ended


def has_exited(pid: int) -> bool:
    """Whether a child of this process has ended by itself, or is not its child any more."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _watch(children: Collection[Child], enough: Callable[[], bool]) -> list[tuple[Child, Ended]]:
    looked = time.monotonic()
    try:
        while True:
            sources = [source for child in children for source in child.sources]
            ready = connection.wait(sources, POLL)
            now = time.monotonic()
            spent, looked = now - looked, now
            processes = snapshot() if any(child.due(now) for child in children) else None
            over = [child for child in children if child.look(spent, ready, processes)]
            if over or enough():
                return [(child, child.end()) for child in over]
    except BaseException:
        for child in children:
            if child.leads:
                child.end()
        raise
