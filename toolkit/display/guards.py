"""Missing guards, as `tcdebug run --check guards` finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from tcdebug.display.console import results

MOST_CHANGES = 3
"""Changed values that are shown; the event has more."""


def show_missing_guards(found: Sequence[Mapping[str, Any]]) -> None:
    """Of each finding: the frame, what came out wrong, what has changed, and the operation."""
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
            out.print(f"  {name:8} {escape(text)}")
