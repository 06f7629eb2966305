"""Imports in the parent what forked children have imported, so that later children need not."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

PACKAGES = ("torch", "triton", "sympy")
"""Packages whose modules can be imported in advance without changing what a child does."""
GENERATED = ".compile_tasks."
"""Part of the names of modules that a compiler generates."""


class ImportsOfChildren:
    """Passes the names of modules from children to this process, through files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: frozenset[str] = frozenset()

    def begin(self) -> None:
        """In a child that has just started, remember what is imported."""
        self._known = frozenset(sys.modules)

    def save(self) -> None:
        """In a child that is about to end, save the names of what it has imported."""
        names = [
            name
            for name in sys.modules
            if name not in self._known
            and name.partition(".")[0] in PACKAGES
            and GENERATED not in name
        ]
        if names:
            self._file(os.getpid()).write_text("\n".join(names))

    def take_over(self, pid: int) -> None:
        """Import in this process what a child that has ended has imported."""
        path = self._file(pid)
        if not path.exists():
            return
        for name in path.read_text().split():
            with contextlib.suppress(Exception):  # a child that needs it will import it
                importlib.import_module(name)
        path.unlink()

    def _file(self, pid: int) -> Path:
        return self._folder / f"imported-{pid}"
