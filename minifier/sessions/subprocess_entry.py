"""The first code of tcdebug in a process that it did not start itself.

It imports nothing of torch until the process imports torch itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

from tcdebug.minifier.processes.subprocess_hook import VARIABLE, AfterImport

FORKING = ("search:",)
"""The modes whose process forks candidates, and must therefore stay at one thread."""

SAVE = ("torch.export", "save")
"""Stays announced after the first call: `save(export(...))` looks it up before that call."""
ARTIFACTS = "torch._inductor.standalone_compile"
FIRST_CALLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "torch._dynamo": (("torch._dynamo", "optimize"),),
    "torch.export": tuple(
        ("torch.export", name) for name in ("export", "draft_export", "load", "save")
    ),
    "torch._inductor": tuple(
        ("torch._inductor", name)
        for name in ("aoti_compile_and_package", "aot_compile", "compile", "standalone_compile")
    ),
    "torch._inductor.compile_fx": (("torch._inductor.compile_fx", "compile_fx"),),
    "torch._inductor.package": (("torch._inductor.package", "load_package"),),
    ARTIFACTS: ((f"{ARTIFACTS}:CompiledArtifact", "load"),),
}
"""Module -> the functions of it that compile, export, save or load."""


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
    """Call `do` when this process first compiles or exports, before that has any effect.

    Nothing of torch need be imported yet. This function imports nothing of it.
    """
    undo: list[Callable[[], None]] = []
    called = False

    def first() -> None:
        nonlocal called
        for one in undo:
            one()
        if not called:
            called = True
            do()

    def imported(module: str) -> None:
        from tcdebug.minifier.targets.interception import before_call  # noqa: PLC0415 - start-up time of every Python process

        if not called:  # Dynamo is only half imported at this point
            undone = {call: before_call(*call, first) for call in FIRST_CALLS[module]}
            undo.extend(one for call, one in undone.items() if call != SAVE)

    for module in FIRST_CALLS:
        if module in sys.modules:
            imported(module)
        else:
            sys.meta_path.insert(0, AfterImport({module: partial(imported, module)}))
