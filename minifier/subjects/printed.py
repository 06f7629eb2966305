"""Compares what a script prints in eager and compiled.

Many scripts print a wrong number and end as if nothing had happened. Lines of logs and warnings do
not count, nor do differences between numbers that rounding explains.
"""

from __future__ import annotations

import math
import re
from difflib import SequenceMatcher

from tcdebug.minifier.repros.last_words import LOGGED

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|\b(?:nan|inf)\b)")
CLOSE, SMALL = 1e-3, 1e-4
"""The relative and absolute difference between printed numbers that rounding may explain."""
LONGEST = 120
"""The limit on the characters of a line that are shown."""


def printed_otherwise(eager: str, compiled: str, again: str) -> str:
    """Return the first difference between outputs, in words; empty if there is none.

    It is one only if two outputs of the compiled script agree there. A compiled script may print
    more, such as why it was compiled again.
    """
    expected, printed, repeated = (_lines(text) for text in (eager, compiled, again))
    if len(printed) != len(repeated):
        return ""
    first, second = ([NUMBER.sub("#", line) for line in lines] for lines in (expected, printed))
    for what, a, a_end, b, b_end in SequenceMatcher(
        None, first, second, autojunk=False
    ).get_opcodes():
        wanted, got = expected[a:a_end], printed[b:b_end]
        if what == "delete":
            return f"`{wanted[0][:LONGEST]}` in eager only"
        for line, other, third in zip(wanted, got, repeated[b:b_end], strict=False):
            if other == third and not _alike(line, other):
                return f"`{line[:LONGEST]}` in eager, and `{other[:LONGEST]}` compiled"
    return ""


def _lines(text: str) -> list[str]:
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not LOGGED.match(line)]


def _alike(wanted: str, got: str) -> bool:
    """Return whether lines are equal, up to numbers that differ by rounding."""
    if NUMBER.sub("#", wanted) != NUMBER.sub("#", got):
        return False
    pairs = zip(NUMBER.findall(wanted), NUMBER.findall(got), strict=True)
    return all(_close(float(a), float(b)) for a, b in pairs)


def _close(a: float, b: float) -> bool:
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=CLOSE, abs_tol=SMALL)
