"""What torch calls at the end of its import: TCDEBUG_REPRO=1 watches the process.

torch loads this package through the entry point group `torch.backends`, in every process that
imports torch where tcdebug is installed. Without the variable it does nothing, and it imports
nothing but the standard library. It is installed as `tcdebug_autoload`, outside `tcdebug`: a script
called tcdebug.py hides the package from its own process, and torch fails to import if an entry
point does. docs/decisions/0024-a-variable-watches-any-program.md
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec

VARIABLE = "TCDEBUG_REPRO"


def attach() -> None:
    """If TCDEBUG_REPRO is set, watch every torch.compile of this process from the first one on.

    Warns if a module called tcdebug hides the package. That module is not run.
    """
    if os.environ.get(VARIABLE, "") in ("", "0"):
        return
    found = find_spec("tcdebug")
    if found is None or found.submodule_search_locations is None:
        hidden_by = found.origin if found else "nothing"
        warnings.warn(f"{VARIABLE} has no effect: 'import tcdebug' finds {hidden_by}", stacklevel=1)
        return
    from tcdebug.minifier.sessions.subprocess_entry import at_first_compile  # noqa: PLC0415 - most processes do not need it

    at_first_compile(_watch)


def _watch() -> None:
    from tcdebug.api.watching import watch_until_exit  # noqa: PLC0415 - imports torch

    watch_until_exit()
