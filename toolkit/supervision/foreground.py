"""Waits for a script that runs in the foreground."""

from __future__ import annotations

import signal
import sys

from tcdebug.display.console import note
from tcdebug.minifier.processes.job import Job, SessionError, started_marker
from tcdebug.minifier.processes.process import Child, finished
from tcdebug.minifier.processes.tree import send_signal


def status_of(child: Child, job: Job) -> int | None:
    """Return the exit status of a foreground script, negative for a signal; None after Ctrl-C.

    The first Ctrl-C or SIGTERM interrupts the script. A second one kills it. Raises SessionError
    if the session of the job ended before it reached the script.
    """
    try:
        status = finished(child).returncode
    except KeyboardInterrupt as interrupt:
        _stop(child, received=sys.stdin.isatty() and signal.SIGTERM not in interrupt.args)
        return None
    assert status is not None, "a script in the foreground has no limits"
    if status != 0 and not started_marker(job, child.pid).exists():
        raise SessionError(f"the session ended with {status} before it reached the script")
    return status


def _stop(child: Child, *, received: bool) -> None:
    """Interrupt the script, unless it has received the Ctrl-C of a terminal, and wait for it."""
    try:
        if not received:
            send_signal(child.pid, signal.SIGINT)
        note("waiting for the script to end; Ctrl-C again kills it")
        finished(child)
    except KeyboardInterrupt:
        child.end()
