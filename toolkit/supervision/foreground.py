"""Waits for a script that runs in the foreground."""

from __future__ import annotations

import signal
import sys

from tcdebug.display.console import note
from tcdebug.minifier.processes.process import Child, finished
from tcdebug.minifier.processes.tree import send_signal


def status_of(child: Child) -> int | None:
    """The exit status of a script in the foreground, negative for a signal; None after Ctrl-C.

    The first Ctrl-C is passed to the script. A second one kills it.
    """
    try:
        status = finished(child).returncode
        assert status is not None, "a script in the foreground has no limits"
        return status
    except KeyboardInterrupt:
        _stop(child)
        return None


def _stop(child: Child) -> None:
    try:
        if not sys.stdin.isatty():  # at a terminal the script has received it
            send_signal(child.pid, signal.SIGINT)
        note("waiting for the script to end; Ctrl-C again kills it")
        finished(child)
    except KeyboardInterrupt:
        child.end()
