"""Runs a script under torch.profiler, and reads what its lines and kernels cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tcdebug.minifier.processes.job import (
    NO_BACKEND,
    SCRIPT_FAILED,
    Job,
    check_backend,
    start_in_foreground,
)
from tcdebug.profiling.profile import Profile
from tcdebug.profiling.profiling import read_profile
from tcdebug.reading.run_dir import find
from tcdebug.supervision.explaining import SCRIPT_LOG
from tcdebug.supervision.foreground import status_of
from tcdebug.supervision.supervisor import Supervisor, begin

FAILED, NOTHING, INTERRUPTED = 1, 4, 130
QUIET_KINETO = {"KINETO_LOG_LEVEL": "6"}
"""Without it, torch's profiler writes lines about itself among those of the script."""


@dataclass(frozen=True)
class ProfiledScript:
    """How a script ended, and its profile. None if no process wrote one."""

    ended: int
    """The exit status of the script; 128 + n after signal n, 130 after Ctrl-C."""
    profile: Profile | None
    problem: str = ""
    """Why the profile cannot be read."""

    @property
    def measured(self) -> bool:
        """Whether a compiled graph ran and was measured."""
        return self.profile is not None and self.profile.steps > 0

    @property
    def exit_status(self) -> int:
        """The exit status of `tcdebug run --profile`."""
        return self.ended or (0 if self.measured else NOTHING)


def begin_profiling(
    script: str, args: Sequence[str], backend: str | None, steps: int, *, notes: bool
) -> Supervisor:
    """Create the run in which a script is profiled."""
    job = Job("profile", script, list(args), "", backend, steps=steps)
    return begin("run", job, quiet=True, fresh=True, notes=notes)


def profiled(supervisor: Supervisor, off: Sequence[str], *, hidden: bool) -> ProfiledScript:
    """Run the script, and end its run. With `hidden`, its output goes to a file of the run.

    Raises UnknownBackend.
    """
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder), "TCDEBUG_PROFILE": "1", **QUIET_KINETO}
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    output = folder / SCRIPT_LOG if hidden else None
    status = status_of(start_in_foreground(supervisor.job, environment, output), supervisor.job)
    check_backend(supervisor.job)
    result = _read(folder, _ended(status))
    supervisor.finish(result.exit_status, healthy=result.ended == 0)
    return result


def _ended(status: int | None) -> int:
    if status is None:
        return INTERRUPTED
    if status in (SCRIPT_FAILED, NO_BACKEND):
        return FAILED
    return 128 - status if status < 0 else status


def _read(folder: Path, ended: int) -> ProfiledScript:
    try:
        return ProfiledScript(ended, read_profile(folder, find(str(folder)).events()))
    except (OSError, msgspec.DecodeError) as problem:
        return ProfiledScript(ended, None, str(problem))
