"""Keeps a script from ending the search that is made inside one of its calls.

A script may limit the time of a call: with `signal.alarm`, with `faulthandler`, or with a second
thread that ends the process. A search takes longer than the call.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, install
from tcdebug.minifier.repros.judge.calls import leave_compiled_autograd

EXIT = Patch("os", "_exit", "a thread of a script can end a search in another thread")
PATCHES = (EXIT,)

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Undisturbed:
    """Makes `os._exit` in other threads of this process wait until no search is in progress."""

    def __init__(self) -> None:
        self._searching = threading.RLock()
        self._pid = os.getpid()
        self._filters = list(warnings.filters)
        install(EXIT, self._after_search, EventLog(None))

    def _after_search(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def leave(status: int) -> None:
            if os.getpid() == self._pid:  # rather than a candidate, which is a fork
                self._searching.acquire()
            original(status)

        return leave

    @contextlib.contextmanager
    def search(self) -> Iterator[None]:
        """Search in this block. The script may turn warnings into errors: they are ignored here."""
        with self._searching, timers_stopped(), in_some_folder(), warnings.catch_warnings():
            self._filters = list(warnings.filters)
            warnings.simplefilter("ignore")
            yield

    def in_candidate(self) -> None:
        """Prepare a candidate that was forked during a search.

        It treats warnings as the script does. A backward pass that the script compiles is a graph
        of its own, so a candidate compiles none.
        """
        warnings.filters[:] = self._filters  # type: ignore[index]  # it is a list
        leave_compiled_autograd()


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Make other processes of this run wait, because they share the cores and often the graphs."""
    with (folder / "judging").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def timers_stopped() -> Iterator[None]:
    """Stop the script's timers in this block, and leave ended child processes to tcdebug.

    The timers continue after it with the time that they had left. The timer of `faulthandler` does
    not, because nothing tells how it was set.
    """
    left = {timer: signal.setitimer(timer, 0.0) for timer in TIMERS}
    faulthandler.cancel_dump_traceback_later()
    try:
        with _children_left():
            yield
    finally:
        for timer, (seconds, interval) in left.items():
            if seconds:
                signal.setitimer(timer, seconds, interval)


@contextlib.contextmanager
def in_some_folder() -> Iterator[None]:
    """Work in the root folder in this block if the script has removed its current folder.

    Imports of torch resolve relative paths, which fails where there is no folder.
    """
    with contextlib.ExitStack() as stack:
        try:
            os.getcwd()
        except FileNotFoundError:
            removed = os.open(os.curdir, os.O_RDONLY)
            stack.callback(os.close, removed)
            stack.callback(os.fchdir, removed)
            os.chdir(os.sep)
        yield


@contextlib.contextmanager
def _children_left() -> Iterator[None]:
    """Handle the end of a child process as Python does if the script has not changed that.

    A script that ignores its children, or waits for any of them, would take those of a search.
    """
    given = signal.getsignal(signal.SIGCHLD)
    if given is None or threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can change handlers, and only those of Python
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, given)
