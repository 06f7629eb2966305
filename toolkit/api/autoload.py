"""What torch calls at the end of its import: TCDEBUG_REPRO=1 watches the process.

torch loads this module through the entry point group `torch.backends`, in every process that
imports torch where tcdebug is installed. Without the variable it does nothing, and it imports
nothing but the standard library. docs/decisions/0024-a-variable-watches-any-program.md
"""

from __future__ import annotations

import os

VARIABLE = "TCDEBUG_REPRO"


def attach() -> None:
    """If TCDEBUG_REPRO is set, watch every torch.compile of this process from the first one on."""
    if os.environ.get(VARIABLE, "") in ("", "0"):
        return
    from tcdebug.minifier.sessions.subprocess_entry import at_first_compile  # noqa: PLC0415 - most processes do not need it

    at_first_compile(_watch)


def _watch() -> None:
    from tcdebug.api.watching import watch_until_exit  # noqa: PLC0415 - imports torch

    watch_until_exit()
