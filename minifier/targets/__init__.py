"""Targets: ways to compile a case under toggles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from tcdebug.compiler.gate.toggles import Toggles


class Target(Protocol):
    """A way to compile. `name` is the user's name for it."""

    @property
    def name(self) -> str: ...

    @property
    def draws_as_eager(self) -> bool:
        """Whether compiled code draws the random numbers of eager."""
        ...

    def compiled(
        self, module: Callable[..., Any], toggles: Toggles, notify: Callable[[str], None]
    ) -> AbstractContextManager[Callable[..., Any]]:
        """Compile a module. The toggles are in force until the block ends.

        Each toggle writes a `decision` event when it is consulted. The target calls
        notify("compile") when it is given a graph, because an earlier failure is not its own, and
        notify("forward") when the compiled program first runs.
        """
        ...

    def keeping(self, folder: Path) -> Target:
        """Return this target, set to write the text of each of its stages to a run folder.

        The order of the texts is that of their events: those of the embedded compiler's stages, or
        `stage.text`. Each text is written at once, because the compile may not end.
        """
        ...

    def in_one_process(self) -> Target:
        """Return this target, set to compile in its own process, whose CPU time is then all."""
        ...

    def call(self) -> dict[str, Any]:
        """Return the arguments of torch.compile in a repro script: those of the user's script."""
        ...

    def added(self) -> dict[str, Any]:
        """Return the settings of inductor that a candidate has in addition to the script's."""
        ...
