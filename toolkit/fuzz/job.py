"""What the workers of a campaign are asked to do."""

from __future__ import annotations

import msgspec

from tcdebug.minifier.processes.process import Limits

BAD_JOB = 2
"""Exit status of a worker that cannot do its job; it has printed why."""
ROUND = 25
"""Programs of one seed: Hypothesis varies what it has drawn, so a fresh seed is more various."""
APART = 1_000_003
"""The seeds of two workers of a campaign are this far apart."""


class FuzzJob(msgspec.Struct, frozen=True):
    """A campaign, as one of its workers sees it.

    `examples` and `seconds` are what this worker may use, None for no limit. `database` is a
    folder, a redis:// address, or empty for none. `units` are switched off
    now and then; where none are given, those of the backend's.
    """

    run_dir: str
    findings: str
    backend: str = "tcdebug"
    worker: int = 0
    seed: int = 0
    examples: int | None = None
    seconds: float | None = None
    units: tuple[str, ...] = ()
    database: str = ""
    bisect: bool = True
    limits: Limits = Limits(60.0, 4 << 30)
    again: tuple[str, ...] = ()
    """Findings by the name of their folder, to be judged again; nothing is drawn then."""
    stop_after: int | None = None
    """Findings after which there is enough."""
    setup: str = ""
    """A Python file that is run first: what it registers or patches is fuzzed too."""
