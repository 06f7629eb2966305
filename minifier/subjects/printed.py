"""Compares what a script prints in eager and compiled.

Many scripts print a wrong number and end as if nothing had happened. Lines of logs and warnings do
not count, nor do differences between numbers that rounding explains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from tcdebug.minifier.cases.criteria import PrintedLine
from tcdebug.minifier.repros.last_words import CLOSE, LOGGED, NUMBER, OF_PROCESS, SMALL

LONGEST = 120
"""The limit on the characters of a line that are shown."""
MOST_COMPARED = 1_000_000
"""The limit on pairs of lines that are compared, which takes less than a second."""


TIMED = re.compile(
    r"\b(?:[mnuμ]?s|secs?|seconds?|minutes?|fps|it/s|[KMG]i?B|took|elapsed|times?|latency|speed\w*|"
    r"throughput|faster|slower|memory)\b|\d\s?(?:x|%|[mnuμ]?s|[KMG]i?B)\b",
    re.IGNORECASE,
)
"""What a line with a measurement contains. A compiled program has other ones than eager."""

LISTED = re.compile(r"[-\d\s,()\[\]{}]+")
"""Whole numbers, and what stands around and between several."""
FRACTION = re.compile(r"\d\.|\.\d|\de[-+]?\d|\bnan\b|\binf\b")
"""What a number has that is not a whole one."""
OF_TENSOR = re.compile(r"\btensor\(|\btorch\.Size\(")
"""What stands before the numbers of a tensor, or its shape."""
OPERATOR = re.compile(r"\b(?:aten|prims?|inductor)(?:\.|::)\w")
"""The name of an operator of a graph."""


@dataclass(frozen=True)
class PrintedDifference:
    """A line of eager that a compiled script prints differently, or not at all."""

    wanted: str
    got: str
    """The line of the compiled script; empty if there is none."""
    fewer: bool = False
    """Whether the compiled script prints the line too, but less often."""

    def __str__(self) -> str:
        wanted = f"`{self.wanted[:LONGEST]}` in eager"
        if not self.got:
            return f"{wanted} only"
        return f"{wanted}, and `{self.got[:LONGEST]}` compiled"

    @property
    def counts(self) -> bool:
        """Whether it may be a count of what is compiled otherwise than eager runs it.

        Such are operators, saved tensors, their shapes, and calls of hooks. Only whole numbers
        differ then, outside of tensors, or names of operators.
        """
        if self.fewer:
            return True
        if not self.got or OF_TENSOR.search(self.wanted):
            return False
        if OPERATOR.search(self.wanted) or OPERATOR.search(self.got):
            return True
        lines = self.wanted, self.got
        texts, numbers = zip(*((NUMBER.sub("#", x), NUMBER.findall(x)) for x in lines), strict=True)
        if texts[0] == texts[1]:
            differing = [pair for pair in zip(*numbers, strict=True) if pair[0] != pair[1]]
            return not any(FRACTION.search(number) for pair in differing for number in pair)
        fractions = any(FRACTION.search(line) for line in lines)
        return not fractions and LISTED.sub("", lines[0]) == LISTED.sub("", lines[1])


def printed_differences(
    eager: str, compiled: str, again: str, *, ordered: bool = True
) -> tuple[PrintedDifference, ...]:
    """Return where outputs differ, in the order of eager's lines.

    Two outputs of the compiled script must agree there. A compiled script may print more, such as
    why it was compiled again. Lines of several processes or threads come in any order: unless they
    are `ordered`, a line counts only if it is printed less often than in eager.
    """
    expected, printed, repeated = (_lines(text) for text in (eager, compiled, again))
    if len(printed) != len(repeated):
        return ()
    found: list[PrintedDifference] = []
    first, second = ([NUMBER.sub("#", line) for line in lines] for lines in (expected, printed))
    for what, a, a_end, b, b_end in _steps(first, second):
        wanted, got = expected[a:a_end], printed[b:b_end]
        if what == "delete":
            found += [PrintedDifference(line, "", _count(line, compiled) > 0) for line in wanted]
        for line, other, third in zip(wanted, got, repeated[b:b_end], strict=False):
            if other == third and not _alike(line, other):
                found.append(PrintedDifference(line, other))
    if ordered:
        return tuple(found)
    counted = [(d, PrintedLine(d.wanted, _count(d.wanted, eager))) for d in found]
    return tuple(d for d, line in counted if not is_printed(line, compiled))


def _steps(first: list[str], second: list[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the steps of `SequenceMatcher.get_opcodes` from one list to the other.

    What stands between their common beginning and end is compared only if it is short enough,
    since the time is quadratic.
    """
    longest = min(len(first), len(second))
    start = next((n for n in range(longest) if first[n] != second[n]), longest)
    rest = longest - start
    end = next((n for n in range(rest) if first[-1 - n] != second[-1 - n]), rest)
    a, b = len(first) - end, len(second) - end
    yield "equal", 0, start, 0, start
    if (a - start) * (b - start) <= MOST_COMPARED:
        inside = SequenceMatcher(None, first[start:a], second[start:b], autojunk=False)
        for what, i, i_end, j, j_end in inside.get_opcodes():
            yield what, start + i, start + i_end, start + j, start + j_end
    yield "equal", a, len(first), b, len(second)


def line_to_print(line: str, eager: str) -> PrintedLine | None:
    """Return a line and how often eager prints it; None if it shows a measurement."""
    return None if TIMED.search(line) else PrintedLine(line, _count(line, eager))


def is_printed(wanted: PrintedLine, text: str) -> bool:
    """Return whether an output has a line as often as it must. Numbers may differ by rounding."""
    return _count(wanted.text, text) >= wanted.times


def _count(line: str, text: str) -> int:
    return sum(_alike(line, other) for other in _lines(text))


def _lines(text: str) -> list[str]:
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not LOGGED.match(line)]


def _alike(wanted: str, got: str) -> bool:
    """Return whether lines are equal, up to numbers that differ by rounding."""
    wanted, got = (OF_PROCESS.sub("", line) for line in (wanted, got))
    if NUMBER.sub("#", wanted) != NUMBER.sub("#", got):
        return False
    pairs = zip(NUMBER.findall(wanted), NUMBER.findall(got), strict=True)
    return all(_close(float(a), float(b)) for a, b in pairs)


def _close(a: float, b: float) -> bool:
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=CLOSE, abs_tol=SMALL)
