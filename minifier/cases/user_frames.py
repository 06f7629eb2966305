"""Reads exceptions and the user's lines from printed tracebacks. It does not import torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import takewhile

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n\s+(?P<code>.+)')
PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
TRACEBACK = "Traceback (most recent call last):"
OF_THE_USER = "from user code:\n"
"""The text that Dynamo writes before the stack of the program it was capturing."""


def frames(trace: str) -> Iterator[tuple[str, str]]:
    """Yield file and text of each frame, the outermost first. The text is "file:3 in f: code"."""
    for found in FRAME.finditer(trace):
        line, code = f"{found['file']}:{found['line']}", found["code"].strip()
        yield found["file"], f"{line} in {found['name']}: {code}"


def lines_of_error(text: str) -> list[str]:
    """Return the user's lines at which Dynamo reports an error, the innermost first.

    If the output holds several such stacks, the last one counts. Lines inside torch are left out.
    """
    _, found, rest = text.rpartition(OF_THE_USER)
    if not found:
        return []
    stack, _, _ = rest.partition("\n\n")
    of_torch = folders_of_torch()
    lines = [line for file, line in frames(stack) if not of_torch or not file.startswith(of_torch)]
    return lines[::-1]


def innermost_line(trace: str) -> str:
    """Return the innermost line of a stack trace as FILE:N; empty if there is none.

    A line inside torch counts only if all lines are.
    """
    found = [(match["file"], f"{match['file']}:{match['line']}") for match in PLACE.finditer(trace)]
    of_torch = folders_of_torch()
    outside = [line for file, line in found if not of_torch or not file.startswith(of_torch)]
    return (outside or [line for _, line in found] or [""])[-1]


def folders_of_torch() -> tuple[str, ...]:
    """Return how the names of torch's files begin. Those of torchvision begin differently."""
    spec = find_spec("torch")
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return tuple(os.path.join(location, "") for location in locations)


def last_exception(text: str) -> str:
    """Return the exception of the last traceback, with its message up to an empty line.

    Empty if there is no traceback.
    """
    _, found, rest = text.rpartition(TRACEBACK)
    lines = rest.splitlines() if found else []
    for place, line in enumerate(lines):
        if line and not line[0].isspace() and not line.startswith(("tcdebug:", "The above")):
            return "\n".join(takewhile(bool, lines[place:]))
    return ""


def raising_statement(text: str) -> str:
    """Return the line at which the last traceback ends; empty if there is none."""
    _, found, rest = text.rpartition(TRACEBACK)
    lines = [match["code"].strip() for match in FRAME.finditer(rest if found else "")]
    return lines[-1] if lines else ""
