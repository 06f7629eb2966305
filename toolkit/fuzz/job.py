"""The job of a campaign's workers."""

from __future__ import annotations

import msgspec

from tcdebug.minifier.processes.process import Limits
from tcdebug.strategies.devices import CPU
from tcdebug.strategies.kinds import ProgramKind

BAD_JOB = 2
"""Exit status of a worker that cannot do its job. It has printed the reason."""
ROUND = 25
"""Programs per seed. A worker continues with the next seed."""
APART = 1_000_003
"""Distance between the seeds of two workers of a campaign."""


class FuzzJob(msgspec.Struct, frozen=True):
    """A campaign, as seen by one of its workers.

    `examples` and `seconds` are the limits of this worker; None means no limit. Its start counts.
    `database` is a folder, a redis:// address, or empty for none. `units` are switched off in some
    programs; if empty, those of the backend are used.
    """

    run_dir: str
    findings: str
    backend: str = "tcdebug"
    worker: int = 0
    seed: int = 0
    examples: int | None = None
    seconds: float | None = None
    until: float | None = None
    """The time at which the seconds are over, by the monotonic clock of this machine."""
    units: tuple[str, ...] = ()
    database: str = ""
    bisect: bool = True
    limits: Limits = Limits(60.0, 4 << 30)
    again: tuple[str, ...] = ()
    """Names of findings to judge again. No programs are generated then."""
    stop_after: int | None = None
    """Stop after this many findings."""
    setup: str = ""
    """A Python file that runs first. Its registrations and patches are fuzzed too."""
    device: str = CPU
    large: bool = False
    """Whether tensors have more than 2**31 elements."""
    programs: ProgramKind = ProgramKind.GRAPHS
    workers: int = 1
    """Number of workers that share the device."""
