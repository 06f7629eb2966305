"""Ends a script whose requested backend is not registered, and suggests similar names."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tcdebug.minifier.processes.job import NO_BACKEND_FILE, Job
from tcdebug.minifier.sessions.execution import NoBackend


def checked(job: Job) -> Callable[[Any], Any]:
    """Return a wrapper of a script's backends that checks that the job's backend is registered.

    It checks at the first torch.compile, because the script may register the backend.
    """

    def check(backend: Any) -> Any:
        if job.backend is not None and job.backend not in _registered():
            say_missing(job, job.backend)
            raise NoBackend(job.backend)
        return backend

    return check


def say_missing(job: Job, name: str) -> None:
    """Write a message for the command: which backend is missing, and similar names."""
    (Path(job.run_dir) / NO_BACKEND_FILE).write_text(problem_with(name))


def problem_with(name: str) -> str:
    """Return that a backend is not registered, with similar names; empty if it is."""
    known = _registered()
    if name in known:
        return ""
    near = difflib.get_close_matches(name, known, 3)
    usual: list[str] = torch.compiler.list_backends()
    which = f"the nearest are: {', '.join(near)}" if near else f"there are {', '.join(usual)}"
    return f"no backend {name!r} is registered; {which}"


def _registered() -> list[str]:
    found: list[str] = torch.compiler.list_backends(exclude_tags=())
    return found
