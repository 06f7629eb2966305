"""What a Python process that a script started does first, before it imports anything.

Nothing of torch is imported until the process imports torch itself.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tcdebug.minifier.processes.subprocess_hook import VARIABLE, AfterImport

FORKING = ("search:",)
"""The modes whose process forks candidates: it stays at one thread from its beginning."""


def attach() -> None:
    """In a process that has just begun: do what the variable says when it first compiles."""
    what = os.environ.get(VARIABLE)
    if not what:
        return

    def begun() -> None:
        if what.startswith(FORKING):
            from tcdebug.minifier.processes.threads import one_thread  # noqa: PLC0415 - imports torch

            one_thread()

    def compiles() -> None:
        dynamo: Any = sys.modules["torch._dynamo"]
        original = dynamo.optimize

        def first(*args: Any, **kwargs: Any) -> Any:
            from tcdebug.minifier.sessions.subprocess_session import install  # noqa: PLC0415 - imports torch

            dynamo.optimize = original
            install(what)
            return dynamo.optimize(*args, **kwargs)

        dynamo.optimize = first  # not before: Dynamo is imported in the middle of other imports

    sys.meta_path.insert(0, AfterImport({"torch": begun, "torch._dynamo": compiles}))
