"""Refuses a run whose backend is not registered."""

from __future__ import annotations

from tcdebug.display.console import error
from tcdebug.minifier.processes.job import UnknownBackend, check_backend
from tcdebug.supervision.supervisor import Supervisor

USAGE = 2


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
