"""What a run of a repro in a child process reports to its parent."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ChildReport:
    """The output of a run, by which it reports its phases and its result."""

    output: int
    errors: int

    def phase(self, name: str) -> None:
        """Report that a phase begins."""
        self._write("phase", name)

    def result(self, found: Mapping[str, Any]) -> None:
        """Report the result."""
        self._write("found", found)

    def traceback(self, error: BaseException) -> None:
        """Print the traceback of an exception."""
        os.write(self.errors, "".join(traceback.format_exception(error)).encode())

    def _write(self, *words: object) -> None:
        sys.stdout.flush()
        os.write(self.output, (" ".join(map(str, words)) + "\n").encode())
