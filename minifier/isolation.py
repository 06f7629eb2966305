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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
import psutil

POLL = 0.05
"""Seconds between looks at a child's memory."""
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
    """Run `work` in a child; it may call its argument to say which phase it is in.

    What the child prints goes to `output`, or nowhere.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.monotonic()
    pid = fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, output)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return _watch(pid, pipe, limits, start)


def _child(work: Work, writer: int, output: Path | None) -> None:
    """In the child: never returns, whatever happens."""
    status = 1
    try:
        os.setsid()
        _die_with_parent()
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


def _die_with_parent() -> None:
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


@dataclass
class _Messages:
    """What a child has sent so far."""

    buffer: bytes = b""
    phase: str = ""
    answer: bytes | None = None

    def feed(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 9:
            length = int.from_bytes(self.buffer[1:9], "little")
            if len(self.buffer) < 9 + length:
                return
            tag, text = self.buffer[:1], self.buffer[9 : 9 + length]
            self.buffer = self.buffer[9 + length :]
            if tag == b"P":
                self.phase = text.decode()
            else:
                self.answer = text


def _watch(pid: int, pipe: IO[bytes], limits: Limits, start: float) -> Ended:
    """In the parent: read, look at the clock and at the memory, and clear away what is left."""
    messages = _Messages()
    timed_out = over_memory = said_all = False
    baseline = _memory(os.getpid())
    try:
        while True:
            ready, _, _ = select.select([pipe], [], [], POLL)
            if ready:
                data = os.read(pipe.fileno(), 1 << 16)
                messages.feed(data)
                if not data or messages.answer is not None:
                    said_all = True
                    break
            if time.monotonic() - start > limits.seconds:
                timed_out = True
                break
            if not ready and _memory(pid) - baseline > limits.memory:
                over_memory = True
                break
    finally:
        if said_all:
            _await_exit(pid)
        _kill_group(pid)  # the child if it is still there, and compilers that it started
        _, status, usage = os.wait4(pid, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Ended(
        answer=messages.answer,
        phase=messages.phase,
        signal=0 if timed_out or over_memory else ended_by,
        timed_out=timed_out,
        over_memory=over_memory,
        pid=pid,
        seconds=time.monotonic() - start,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
    )


def _await_exit(pid: int) -> None:
    """Give a child that has said all it had to say a moment to end by itself."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.005)


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
