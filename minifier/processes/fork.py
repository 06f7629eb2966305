"""Does work in a forked child, which may crash, hang or exhaust memory.

The child starts as a copy of this process. Everything that a script has set up is in force in it:
imports, monkeypatches, registrations, options, data, and random numbers; and torch is warm. The
parent must not have used OpenMP with several threads (see `threads`), because a forked thread pool
hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
import platform
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tcdebug.minifier.processes.channel import Channel, Parent, channel
from tcdebug.minifier.processes.memory import resident
from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child, Limits
from tcdebug.minifier.processes.tree import kill_descendants

Notify = Callable[[str], None]
"""Called with the phase that the work has reached."""
Work = Callable[[Parent], bytes]
Fork = Callable[[], int]

CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call clone(2) by machine."""


def fork(
    work: Work,
    limits: Limits | None = None,
    output: Path | None = None,
    system_call: Fork = os.fork,
) -> Child:
    """Start `work` in a child that leads its own session and dies with its parent.

    The work gets the parent, to which it may report its phase. Its result is the answer. The output
    of the child is appended to the file `output`, or discarded. Ctrl-C does not reach the child.
    """
    ours, theirs = channel()
    bind = bound_to_this_process()
    sys.stdout.flush()
    sys.stderr.flush()
    baseline = resident(os.getpid())
    try:
        pid = divided(system_call)
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        _child(work, ours, theirs, output, bind)
    theirs.close()
    return Child(pid, limits, ours, fork=system_call, baseline=baseline)


def divided(system_call: Fork = os.fork) -> int:
    """Fork this process, and return what fork(2) returns.

    Both processes continue with the same random numbers. Python itself seeds `random` anew in each
    child.
    """
    numbers = random.getstate()
    pid = system_call()
    if pid == 0:
        random.setstate(numbers)
    return pid


def fork_past_handlers() -> int:
    """Fork without the fork handlers that libraries have registered.

    Once autograd has started device threads, such a handler makes every backward fail in a forked
    child. These threads are idle, and a child that stays on the CPU does not need them. On an
    unknown machine this is os.fork.
    """
    number = CLONE.get(platform.machine())
    if number is None:
        return os.fork()
    python = ctypes.PyDLL(None)  # keeps the GIL, so that the child holds it too
    python.PyOS_BeforeFork()
    pid = int(python.syscall(number, int(signal.SIGCHLD), 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError("the process could not be forked")
    return pid


def _child(
    work: Work, ours: Channel, theirs: Channel, output: Path | None, bind: Callable[[], None]
) -> NoReturn:
    """Run the work in the child. Never returns."""
    status = 1
    try:
        os.setsid()
        bind()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
        redirect(output)
        ours.close()
        _replace_thread_pool()
        _release_captures()
        parent = Parent(theirs)
        parent.answer(work(parent))
        status = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(BaseException):
            _end_descendants()
        os._exit(status)


def _replace_thread_pool() -> None:
    """Let torch replace the thread pool that a fork loses, while this is the only thread.

    Otherwise the threads of autograd replace it. If two of them do so at the same time, torch ends
    the process with "Invalid thread pool!". What has replaced torch's function is left out: the
    number of threads that a script wants, which `threads` remembers, stays as it is.
    """
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "set_num_threads"):
        inspect.unwrap(torch.set_num_threads)(torch.get_num_threads())


def _release_captures() -> None:
    """Release Dynamo's lock, which the parent may hold, for all threads of this process.

    On a GPU, a backward is compiled in a thread of autograd. It would wait for the lock forever.
    """
    if (frames := sys.modules.get("torch._dynamo.convert_frame")) is not None:
        frames.compile_lock._at_fork_reinit()


def _end_descendants() -> None:
    """End what the work has left running, while all of it still descends from this process."""
    with contextlib.suppress(ChildProcessError):  # no child is left
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        kill_descendants(os.getpid(), remove_unfinished=True)


def redirect(output: Path | None) -> None:
    """Let this process read nothing, and append its output to a file, or discard it."""
    target = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
