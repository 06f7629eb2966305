"""Run a piece of work in a forked child: it may crash, hang or eat memory, and nothing is lost.

The child starts from this very process, so all that a script has set up before is in force in it:
imports, monkeypatches, registrations, options, the data itself; and torch is warm. The parent must
not have run OpenMP on several threads (see `single_thread`): a forked pool hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import select
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

POLL = 0.05
"""Seconds between looks at a child's memory."""
BRIEF = 0.005
"""The same where a child is about to be gone."""
PATIENCE = 5.0
"""Seconds that a child may take to end after its last word."""


class Limits(msgspec.Struct, frozen=True):
    """What a child may use: wall seconds, and bytes of memory beyond what its parent has."""

    seconds: float = 120.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Ended:
    """How a child ended. `answer` is what the work returned, None where it did not get there."""

    answer: bytes | None
    phase: str
    signal: int
    timed_out: bool
    over_memory: bool
    pid: int
    seconds: float
    cpu_seconds: float


Notify = Callable[[str], None]
Work = Callable[[Notify], bytes]
Fork = Callable[[], int]


CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of clone(2) by machine."""


def fork_past_handlers() -> int:
    """Fork without what libraries have registered for a fork; as os.fork where that is not known.

    Autograd, once it has started threads for devices, forbids every backward in a forked child by
    such a handler. The threads are idle, and a child that stays on the CPU needs none of them.
    """
    number = CLONE.get(platform.machine())
    if number is None:
        return os.fork()
    python = ctypes.PyDLL(None)  # the GIL stays held, so that the child has it
    python.PyOS_BeforeFork()
    pid = int(python.syscall(number, int(signal.SIGCHLD), 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("the process could not be forked")
    return pid


def run_isolated(
    work: Work, limits: Limits, output: Path | None = None, fork: Fork = os.fork
) -> Ended:
    """Run `work` in a child as `start` does, and wait for its end."""
    ((_, ended),) = wait([start(work, limits, output, fork)])
    return ended


def start(work: Work, limits: Limits, output: Path | None = None, fork: Fork = os.fork) -> Child:
    """Begin `work` in a child, of which `wait` tells the end. One thread can watch many.

    The work may call its argument to say which phase it is in. What the child prints goes to
    `output`, or nowhere.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    baseline = _memory(os.getpid())
    started = time.monotonic()
    pid = fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, output)
    os.close(writer)
    return Child(pid, reader, limits, baseline, started, limits.seconds, fork)


def _child(work: Work, writer: int, output: Path | None) -> None:
    """In the child: never returns, whatever happens."""
    status = 1
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
        _redirect(output)

        def send(tag: bytes, text: bytes) -> None:
            os.write(writer, tag + len(text).to_bytes(8, "little"))
            view = memoryview(text)
            while view:
                view = view[os.write(writer, view) :]

        answer = work(lambda phase: send(b"P", phase.encode()))
        send(b"A", answer)
        status = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that forked it ends, however that ends."""
    ask_for_signal_on_parent_death = 1  # PR_SET_PDEATHSIG of prctl(2)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(ask_for_signal_on_parent_death, signal.SIGKILL)


def _redirect(output: Path | None) -> None:
    target = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)


@dataclass(eq=False)
class Child:
    """A child at work, as its parent knows it."""

    pid: int
    pipe: int
    limits: Limits
    baseline: int
    """Bytes that the parent had when it forked."""
    started: float
    left: float
    """Seconds that it may still take; only those count in which the parent watches."""
    fork: Fork
    phase: str = ""
    answer: bytes | None = None
    timed_out: bool = False
    over_memory: bool = False
    _unread: bytes = b""
    _silent_since: float | None = None
    """When it had said all it had to say."""

    @property
    def silent(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self._silent_since is not None

    def look(self, ready: bool, spent: float) -> bool:
        """Hear what it says, look at the clock and at its memory; whether it is at its end."""
        self.left -= spent
        if ready:
            self._hear(os.read(self.pipe, 1 << 16))
        if self._silent_since is not None:
            waited = time.monotonic() - self._silent_since
            return waited > PATIENCE or _exited(self.pid)
        if self.left < 0:
            self.timed_out = True
        elif not ready and _memory(self.pid) - self.baseline > self.limits.memory:
            self.over_memory = True
        return self.timed_out or self.over_memory

    def _hear(self, data: bytes) -> None:
        self._unread += data
        while len(self._unread) >= 9:
            length = int.from_bytes(self._unread[1:9], "little")
            if len(self._unread) < 9 + length:
                break
            tag, text = self._unread[:1], self._unread[9 : 9 + length]
            self._unread = self._unread[9 + length :]
            if tag == b"P":
                self.phase = text.decode()
            else:
                self.answer = text
        if not data or self.answer is not None:
            self._silent_since = time.monotonic()

    def end(self) -> Ended:
        """End the child if it is still there, and compilers that it started.

        What those were writing goes with them: the next one would take a part for the whole.
        """
        unfinished = set() if _exited(self.pid) else _stopped_outputs(self.pid)
        for path in unfinished:
            path.unlink(missing_ok=True)  # while a lock on it is still held
        _kill_group(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        os.close(self.pipe)
        stopped = self.timed_out or self.over_memory or not os.WIFSIGNALED(status)
        return Ended(
            answer=self.answer,
            phase=self.phase,
            signal=0 if stopped else os.WTERMSIG(status),
            timed_out=self.timed_out,
            over_memory=self.over_memory,
            pid=self.pid,
            seconds=time.monotonic() - self.started,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
        )


def wait(children: Collection[Child]) -> list[tuple[Child, Ended]]:
    """Watch children until one has ended, or more; interrupted, it ends them all."""
    ended: list[tuple[Child, Ended]] = []
    looked = time.monotonic()
    try:
        while not ended:
            speaking = [c.pipe for c in children if not c.silent]
            pause = POLL if len(speaking) == len(children) else BRIEF
            ready, _, _ = select.select(speaking, [], [], pause)
            now = time.monotonic()
            spent, looked = now - looked, now
            over = [c for c in children if c.look(c.pipe in ready, spent)]
            ended = [(c, c.end()) for c in over]
    except BaseException:
        for child in children:
            with contextlib.suppress(OSError):  # it had ended already
                child.end()
        raise
    return ended


def _exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _stopped_outputs(pid: int) -> set[Path]:
    """Stop a child where it stands; the files that processes which it started are writing."""
    paths: set[Path] = set()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGSTOP)
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                files = process.open_files()
                paths.update(Path(f.path) for f in files if f.fd > 2 and f.mode != "r")
    return paths


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _memory(pid: int) -> int:
    """Resident bytes of a process and its children."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        total = process.memory_info().rss
        if pid != os.getpid():
            for child in process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    total += child.memory_info().rss
    return total
