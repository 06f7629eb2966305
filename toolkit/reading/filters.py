"""Selects events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcdebug.compiler.gate.toggles import belongs
from tcdebug.reading.run_dir import Record


class BadLine(ValueError):
    """A place is not FILE:N. The message says so."""


@dataclass(frozen=True)
class Selection:
    """A selection by stage, graph, unit, kind, and line of the program. Empty fields match all."""

    stage: str = ""
    graph: str = ""
    unit: str = ""
    event: str = ""
    line: tuple[str, int] | None = None

    def fits(self, record: Record) -> bool:
        """Return whether an event matches."""
        return (
            (not self.stage or record.get("stage") == self.stage)
            and (not self.graph or record.get("compile_id") == self.graph)
            and (not self.unit or belongs(str(record.get("unit", "")), self.unit))
            and (not self.event or belongs(str(record.get("event", "")), self.event))
            and (self.line is None or any(_same(p, self.line) for p in places(record)))
        )


def places(record: Record) -> list[tuple[str, int]]:
    """Return the lines of the program that an event concerns, for a kernel those of its origins."""
    where: dict[str, Any] = record.get("user_loc") or {}
    found = [(str(where["filename"]), int(where["line"]))] if where.get("filename") else []
    for origin in record.get("data", {}).get("origins") or ():
        filename, _, number = str(origin[-1]).rpartition(":")
        if filename and number.isdecimal():
            found.append((filename, int(number)))
    return found


def parse_line(text: str) -> tuple[str, int]:
    """Parse FILE:N. Raises BadLine."""
    filename, _, number = text.rpartition(":")
    if not filename or not number.isdecimal():
        raise BadLine(f"{text!r} is not FILE:N, such as model.py:12")
    return filename, int(number)


def _same(place: tuple[str, int], wanted: tuple[str, int]) -> bool:
    """Return whether two places are equal; of the wanted path, the end is enough."""
    path = "/" + wanted[0].removeprefix("./").lstrip("/")
    return place[1] == wanted[1] and ("/" + place[0].lstrip("/")).endswith(path)
