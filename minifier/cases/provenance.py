"""The lines of the user's program that a graph comes from."""

from __future__ import annotations

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.user_frames import frames


def user_lines(case: Case) -> list[str]:
    """Return each node's innermost user line, without duplicates: "file:3 in f: code"."""
    traces = (list(frames(node.meta.get("stack_trace") or "")) for node in case.calls)
    return list(dict.fromkeys(trace[-1][1] for trace in traces if trace))
