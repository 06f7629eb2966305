"""The user's source lines that a graph comes from."""

from __future__ import annotations

import re

from tcdebug.minifier.cases.case import Case

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n\s+(?P<code>.+)')


def user_lines(case: Case) -> list[str]:
    """The innermost line of each node as Dynamo recorded it, each once: "file:3 in f: code"."""
    lines: list[str] = []
    for node in case.calls:
        frames = list(FRAME.finditer(node.meta.get("stack_trace") or ""))
        if frames:
            last = frames[-1]
            lines.append(f"{last['file']}:{last['line']} in {last['name']}: {last['code'].strip()}")
    return list(dict.fromkeys(lines))
