"""How many run folders are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tcdebug.compiler.configuration.options import BadOption

RUNS_KEPT = 20


def runs_kept(environ: Mapping[str, str] | None = None) -> int:
    """How many healthy runs are kept: TCDEBUG_KEEP_RUNS, 20 by default. Raises BadOption."""
    given = (os.environ if environ is None else environ).get("TCDEBUG_KEEP_RUNS") or str(RUNS_KEPT)
    if not given.isdecimal():
        raise BadOption(f"TCDEBUG_KEEP_RUNS must be a number of runs, not {given!r}")
    return int(given)
