"""Targets: pipelines that a case can be run through under toggles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from tcdebug.compiler.gate import Toggles


class Target(Protocol):
    """A way to compile.

    `name` is what a user calls it. `togglable` says whether toggles change anything: then its
    compiles write `decision` events.
    """

    @property
    def name(self) -> str: ...

    @property
    def togglable(self) -> bool: ...

    def compile(
        self, module: torch.nn.Module, toggles: Toggles, notify: Callable[[str], None]
    ) -> Callable[..., Any]:
        """The module compiled.

        Calls notify("compile") when it is given a graph, for what fails before is no failure of
        this target; and notify("forward") when the compiled program first runs.
        """
        ...

    def call(self) -> dict[str, Any]:
        """The arguments of torch.compile that a repro script uses."""
        ...
