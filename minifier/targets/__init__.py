"""Targets: pipelines that a case can be run through under toggles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tcdebug.compiler.gate.toggles import Toggles

if TYPE_CHECKING:  # the supervisor of a command reads `ladder` and does not load torch
    import torch


class Target(Protocol):
    """A way to compile. `name` is what a user calls it."""

    @property
    def name(self) -> str: ...

    def compiled(
        self, module: torch.nn.Module, toggles: Toggles, notify: Callable[[str], None]
    ) -> AbstractContextManager[Callable[..., Any]]:
        """The module compiled; toggles are in force for as long as the block lasts.

        What a toggle can switch writes a `decision` event when it is asked for. Calls
        notify("compile") when the target is given a graph, for what fails before is no failure of
        this target; and notify("forward") when the compiled program first runs.
        """
        ...

    def keeping(self, folder: Path) -> Target:
        """This target, which leaves the text of each of its stages in a run folder.

        Events say in which order they were written: those of the embedded compiler's stages, or
        `stage.text`. A text is kept as soon as it is there, for the compile may not end.
        """
        ...

    def call(self) -> dict[str, Any]:
        """The arguments of torch.compile that a repro script uses, as the user's script does."""
        ...

    def added(self) -> dict[str, Any]:
        """Settings of inductor that a candidate has besides those of the script."""
        ...
