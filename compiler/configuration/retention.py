"""The number of run folders to keep."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tcdebug.compiler.configuration.options import BadOption

RUNS_KEPT = 20


def runs_kept(environ: Mapping[str, str] | None = None) -> int:
    """Return the number of healthy runs to keep: TCDEBUG_KEEP_RUNS, by default 20.

    Raises BadOption.
    """
    given = (os.environ if environ is None else environ).get("TCDEBUG_KEEP_RUNS") or str(RUNS_KEPT)
    if not given.isdecimal():
        raise BadOption(f"TCDEBUG_KEEP_RUNS must be a number of runs, not {given!r}")
    return int(given)
