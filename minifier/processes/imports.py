"""What forked children import, imported by their parent, so that later children need not."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

PACKAGES = ("torch", "triton", "sympy")
"""Packages whose modules may be imported anywhere without changing what a child does."""
GENERATED = ".compile_tasks."
"""Part of the names of modules that a compiler makes."""


class ImportsOfChildren:
    """Carries the names of modules from children to this process, in files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: frozenset[str] = frozenset()

    def begin(self) -> None:
        """In a child that has just begun: remember what is imported."""
        self._known = frozenset(sys.modules)

    def tell(self) -> None:
        """In a child that is about to end: write down what it has imported."""
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
        """Import here what a child has imported that has ended."""
        path = self._file(pid)
        if not path.exists():
            return
        for name in path.read_text().split():
            with contextlib.suppress(Exception):  # a child imports it where it is needed
                importlib.import_module(name)
        path.unlink()

    def _file(self, pid: int) -> Path:
        return self._folder / f"imported-{pid}"
