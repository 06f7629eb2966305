"""Compiles without the measurement of guards that Dynamo makes for its log.

After each compile, Dynamo flushes the CPU's caches and times the guards. That takes some 25 ms, a
tenth of the CPU time of a candidate, and nothing here reads the result.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched

TIMING = Patch("torch._dynamo.guards", "profile_guard_manager", "each candidate takes longer")
PATCHES = (TIMING,)


def untimed_guards() -> AbstractContextManager[None]:
    """Do not time guards in this block. Where the patch does not fit, they are timed as always."""
    return patched(TIMING, lambda original: lambda *_: 0.0, EventLog(None))
