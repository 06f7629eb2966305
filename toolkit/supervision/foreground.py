"""Runs a script in the foreground: waits for it, or refuses it if its backend is not registered."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tcdebug.display.console import error, note
from tcdebug.display.text import clipped
from tcdebug.minifier.cases.user_frames import last_exception
from tcdebug.minifier.processes.job import (
    SCRIPT_FAILED,
    Job,
    SessionError,
    UnknownBackend,
    check_backend,
    started_marker,
)
from tcdebug.minifier.processes.process import Child, finished
from tcdebug.minifier.processes.tree import send_signal
from tcdebug.supervision.supervisor import Supervisor

USAGE = 2


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


def ending(status: int, log: Path) -> str:
    """Say how a script ended that did not end with 0: by an exception, a signal or a status.

    `log` is the file with its output.
    """
    text = log.read_text(errors="replace").strip()
    if status == SCRIPT_FAILED and (raised := last_exception(text)):
        return f"the script raised {clipped(' '.join(raised.split()), 200)}"
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    last = text.rpartition("\n")[2]
    return f"the script ended with {how}{f': {clipped(last, 200)}' if last else ''}"


def _stop(child: Child, *, received: bool) -> None:
    """Interrupt the script, unless it has received the Ctrl-C of a terminal, and wait for it."""
    try:
        if not received:
            send_signal(child.pid, signal.SIGINT)
        note("waiting for the script to end; Ctrl-C again kills it")
        finished(child)
    except KeyboardInterrupt:
        child.end()


def refused(supervisor: Supervisor, problem: UnknownBackend) -> int:
    """End a run whose backend is not registered, with a message. Return the exit status."""
    supervisor.finish(USAGE, healthy=True)
    error("TCD017", str(problem), "torch.compiler.list_backends() lists the registered backends")
    return USAGE


def backend_missing(supervisor: Supervisor) -> UnknownBackend | None:
    """Return the reason why a session in the foreground ended, if its backend is not registered."""
    try:
        check_backend(supervisor.job)
    except UnknownBackend as problem:
        return problem
    return None
