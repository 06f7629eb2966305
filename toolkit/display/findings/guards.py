"""Shows the missing guards that `tcdebug run --check guards` finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.text import short_line

MOST_CHANGES = 3
"""Maximum number of changed values shown; the event has all."""


def show_missing_guards(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the frame, the wrong result, the changed values and the operation of each finding."""
    out = results()
    for finding in found:
        head = f"missing guard in {finding['frame']}, call {finding['call']}"
        rows = [("wrong", f"{finding['where']}: {finding['detail']}")]
        rows += [("changed", text) for text in finding["changed"][:MOST_CHANGES]]
        if finding["line"]:
            rows.append(("line", finding["line"]))
        if finding["reused"]:
            rows.append(("reused", finding["reused"]))
            rows.append(("fresh", finding["fresh"]))
        out.print(f"[bad]{escape(head)}[/]")
        for name, text in rows:
            out.print(f"  {name:8} {short_line(text) if name == 'line' else escape(text)}")
