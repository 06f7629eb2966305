"""The first code of tcdebug in a process that it did not start itself.

It imports nothing of torch until the process imports torch itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tcdebug.minifier.processes.subprocess_hook import VARIABLE, AfterImport

FORKING = ("search:",)
"""The modes whose process forks candidates, and must therefore stay at one thread."""


def attach() -> None:
    """In a process that a script started, prepare what the variable asks for."""
    what = os.environ.get(VARIABLE)
    if not what:
        return

    def torch_imported() -> None:
        if what.startswith(FORKING):
            from tcdebug.minifier.processes.threads import one_thread  # noqa: PLC0415 - imports torch

            one_thread()

    def install_session() -> None:
        from tcdebug.minifier.sessions.subprocess_session import install  # noqa: PLC0415 - imports torch

        install(what)

    sys.meta_path.insert(0, AfterImport({"torch": torch_imported}))
    at_first_compile(install_session)


def at_first_compile(do: Callable[[], None]) -> None:
    """Call `do` when this process first calls torch.compile, before the call has any effect.

    Dynamo need not be imported yet. This function does not import it.
    """

    def dynamo_imported() -> None:
        from tcdebug.minifier.targets.interception import before_first_compile  # noqa: PLC0415 - start-up time of every Python process

        before_first_compile(do)  # Dynamo is only half imported at this point

    if "torch._dynamo" in sys.modules:
        dynamo_imported()
    else:
        sys.meta_path.insert(0, AfterImport({"torch._dynamo": dynamo_imported}))
