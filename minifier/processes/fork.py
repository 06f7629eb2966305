"""Have a piece of work done in a forked child: it may crash, hang or eat memory.

The child starts from this very process, so all that a script has set up is in force in it: imports,
monkeypatches, registrations, options, the data itself; and torch is warm. The parent must not have
run OpenMP on several threads (see `threads`): a forked pool hangs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
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
"""Told which phase the work is in."""
Work = Callable[[Parent], bytes]
Fork = Callable[[], int]

CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of clone(2) by machine."""


def fork(
    work: Work,
    limits: Limits | None = None,
    output: Path | None = None,
    system_call: Fork = os.fork,
) -> Child:
    """Begin `work` in a child that leads a session of its own and dies with its parent.

    The work is given the parent, which it may tell its phase. What it returns is the answer. What
    the child prints is added to the file `output`, or goes nowhere. Ctrl-C does not reach it.
    """
    ours, theirs = channel()
    bind = bound_to_this_process()
    sys.stdout.flush()
    sys.stderr.flush()
    baseline = resident(os.getpid())
    try:
        pid = system_call()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        _child(work, ours, theirs, output, bind)
    theirs.close()
    return Child(pid, limits, ours, fork=system_call, baseline=baseline)


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


def _child(
    work: Work, ours: Channel, theirs: Channel, output: Path | None, bind: Callable[[], None]
) -> NoReturn:
    """In the child: never returns, whatever happens."""
    status = 1
    try:
        os.setsid()
        bind()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
        _redirect(output)
        ours.close()
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


def _end_descendants() -> None:
    """End what the work has started and left: only now is all of it still below this process."""
    with contextlib.suppress(ChildProcessError):  # there is nothing
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        kill_descendants(os.getpid(), remove_unfinished=True)


def _redirect(output: Path | None) -> None:
    target = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(target, 1)
    os.dup2(target, 2)
