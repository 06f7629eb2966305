"""Reads the user's source lines from stack traces that torch writes. It does not import torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)\n\s+(?P<code>.+)')
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
    spec = find_spec("torch")
    of_torch = tuple(spec.submodule_search_locations or ()) if spec else ()
    stack, _, _ = rest.partition("\n\n")
    lines = [line for file, line in frames(stack) if not of_torch or not file.startswith(of_torch)]
    return lines[::-1]
