"""The first code that runs in a Python process that a script started.

It imports nothing of torch until the process imports torch itself.
"""

from __future__ import annotations

import os
import sys

from tcdebug.minifier.processes.subprocess_hook import VARIABLE, AfterImport

FORKING = ("search:",)
"""The modes whose process forks candidates, and must therefore stay at one thread."""


def attach() -> None:
    """In a new process, prepare what the variable asks for at its first compile."""
    what = os.environ.get(VARIABLE)
    if not what:
        return

    def torch_imported() -> None:
        if what.startswith(FORKING):
            from tcdebug.minifier.processes.threads import one_thread  # noqa: PLC0415 - imports torch

            one_thread()

    def dynamo_imported() -> None:
        from tcdebug.minifier.targets.interception import before_first_compile  # noqa: PLC0415 - start-up time of every Python process

        def install_session() -> None:
            from tcdebug.minifier.sessions.subprocess_session import install  # noqa: PLC0415 - imports torch

            install(what)

        before_first_compile(install_session)  # Dynamo is only half imported at this point

    after = {"torch": torch_imported, "torch._dynamo": dynamo_imported}
    sys.meta_path.insert(0, AfterImport(after))
