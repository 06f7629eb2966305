"""A backend that was asked for and is not registered ends the script, and says which are near."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tcdebug.minifier.processes.job import NO_BACKEND_FILE, Job
from tcdebug.minifier.sessions.execution import NoBackend


def checked(job: Job) -> Callable[[Any], Any]:
    """What each backend of a script goes through: it makes sure that the job's own is registered.

    It is looked up at the first torch.compile, for the script may register it.
    """

    def check(backend: Any) -> Any:
        if job.backend is not None and job.backend not in _registered():
            say_missing(job, job.backend)
            raise NoBackend(job.backend)
        return backend

    return check


def say_missing(job: Job, name: str) -> None:
    """Write down for the command that a backend is missing, and which names are near."""
    known = _registered()
    near = difflib.get_close_matches(name, known, 3)
    usual: list[str] = torch.compiler.list_backends()
    which = f"the nearest are: {', '.join(near)}" if near else f"there are {', '.join(usual)}"
    (Path(job.run_dir) / NO_BACKEND_FILE).write_text(f"no backend {name!r} is registered; {which}")


def _registered() -> list[str]:
    found: list[str] = torch.compiler.list_backends(exclude_tags=())
    return found
