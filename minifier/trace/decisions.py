"""Reads the decisions of a compile from the events of the process that compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import decoded
from tcdebug.compiler.gate.gate import Decision


def read_decisions(path: Path) -> Iterator[Decision]:
    """Yield the decisions in an event file, in order. The file of a crashed process works too."""
    if not path.exists():
        return
    lines = (line for line in path.read_bytes().splitlines() if b'"decision"' in line)
    for event in decoded(lines, dict[str, Any]):
        if event["event"] == "decision":
            data = event["data"]
            yield Decision(
                event["unit"], data["subject"], event["site"], data["ordinal"], data["allowed"]
            )
