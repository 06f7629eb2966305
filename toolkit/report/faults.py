"""What a page shows first of a search: each fault, where it comes in, and the repro to copy."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tcdebug.minifier.investigation.report import Report, ReportedFault
from tcdebug.minifier.repros.standalone import GRAPH

MOST_LINES = 40
"""Lines of a diff that are shown; the tab of the stages has all."""


class FaultView(msgspec.Struct):
    """A fault. `diff` are lines of the stage where it appears, `code` is the repro to copy."""

    fault: ReportedFault
    diff: list[str]
    more: int
    code: str


def faults(report: Report | None) -> list[FaultView]:
    """Return the faults of a report."""
    return [_view(fault) for fault in report.faults] if report else []


def _view(fault: ReportedFault) -> FaultView:
    changed = [line for line in (fault.stages.lines if fault.stages else []) if line[:1] in "+-"]
    return FaultView(fault, changed[:MOST_LINES], max(len(changed) - MOST_LINES, 0), _code(fault))


def _code(fault: ReportedFault) -> str:
    """Return the short form of the repro, or its graph and inputs; empty if neither is readable."""
    for path in (fault.short, fault.repro):
        if path and Path(path).is_file():
            text = Path(path).read_text(errors="replace")
            if path == fault.short:
                return text
            found = GRAPH.search(text)
            return found[0].strip() + "\n" if found else ""
    return ""
