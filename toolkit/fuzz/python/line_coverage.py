"""Records which lines of torch's Python code run, with sys.monitoring.

Python has it since 3.12. Each line reports itself once and is then disabled, so that only the first
run of a line costs time.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

import torch

PACKAGES = ("_dynamo", "_functorch", "_inductor")
"""The packages of torch that are recorded."""
TORCH = Path(torch.__file__).parent
TOOL = "tcdebug fuzz"

Lines = Mapping[str, tuple[int, ...]]
"""Numbers of lines, by file of torch."""


class LineCoverage:
    """The lines that are known to have run, here or in processes whose lines were added."""

    def __init__(self) -> None:
        self._known: defaultdict[str, set[int]] = defaultdict(set)
        self._new: defaultdict[str, list[int]] = defaultdict(list)
        self._places: dict[str, str] = {}
        """Files of torch by the file names of code; empty for others."""

    @property
    def count(self) -> int:
        """The number of known lines."""
        return sum(map(len, self._known.values()))

    def add(self, lines: Lines) -> int:
        """Add lines of another process. Return how many were not known."""
        before = self.count
        for file, numbers in lines.items():
            self._known[file].update(numbers)
        return self.count - before

    def start(self) -> None:
        """Record the lines that this process runs from now on, unless it `cannot_record`."""
        monitoring = _monitoring()
        monitoring.use_tool_id(monitoring.COVERAGE_ID, TOOL)
        line = monitoring.events.LINE
        monitoring.register_callback(monitoring.COVERAGE_ID, line, self._ran)
        monitoring.set_events(monitoring.COVERAGE_ID, line)

    def stop(self) -> None:
        """Record no more lines."""
        monitoring = _monitoring()
        monitoring.set_events(monitoring.COVERAGE_ID, 0)
        monitoring.free_tool_id(monitoring.COVERAGE_ID)

    def new(self) -> Lines:
        """Return the lines that ran for the first time since the last call."""
        taken = {file: tuple(numbers) for file, numbers in self._new.items()}
        self._new.clear()
        return taken

    def _ran(self, code: CodeType, line: int) -> object:
        """Note a line of a function, and disable its event.

        The bodies of modules and classes run when something imports them, whatever it needs.
        """
        name = code.co_filename
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = file_of_torch(name)
        if place and code.co_flags & CO_OPTIMIZED and line not in self._known[place]:
            self._known[place].add(line)
            self._new[place].append(line)
        return _monitoring().DISABLE


def cannot_record() -> str:
    """Return why this process cannot record lines; empty if it can."""
    if sys.version_info < (3, 12):
        return "coverage-guided fuzzing needs Python 3.12 or later, which has sys.monitoring"
    monitoring = _monitoring()
    other = monitoring.get_tool(monitoring.COVERAGE_ID)
    return f"{other} measures coverage in the same process" if other else ""


def _monitoring() -> Any:
    return sys.monitoring  # type: ignore[attr-defined] # mypy checks this as Python 3.11


def file_of_torch(name: str, packages: Iterable[str] = PACKAGES) -> str:
    """Return a file's path inside torch; empty if it is in none of the packages."""
    path = Path(name)
    if not path.is_relative_to(TORCH):
        return ""
    place = path.relative_to(TORCH)
    return place.as_posix() if place.parts[0] in packages else ""
