"""Derives from a script's output why it ended with an exit status that does not tell.

Two runs that end with status 1 need not fail in the same way: a program may catch every exception,
or run tests of which another one fails. This module reads printed text; it does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tcdebug.minifier.cases.exception_identity import normalised
from tcdebug.minifier.cases.user_frames import TRACEBACK, last_exception

CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
"""The beginnings of the line between an exception and the one that it led to."""
FAILED_TEST = re.compile(r"^(?:FAIL|FAILED|ERROR)\b[: ]\s*\S.*", re.MULTILINE)
"""A line in which a test runner names a test."""
LOGGED = re.compile(r"^(?:\[[^\]]*\]:? ?)?[VIWEC]\d{4} |^[^ ].*\b\w*Warning: |^\s")
"""A line of torch's log, a warning, or its indented second line."""
NUMBERS = (
    (re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+|\b(?:nan|inf)\b|\.?#\.?)(?:e[-+]?\d+)?"), "#"),
    (re.compile(r"#(?:[\s,]+#)+"), "#"),
)
"""Numbers, and several numbers in a row, which count as one."""
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|\b(?:nan|inf)\b)")
"""A number by itself."""
OF_PROCESS = re.compile(
    r"(?:,\s*)?grad_fn=<[^>]*>|<?[\w.]*Backward\w*(?: object at 0x[0-9a-f]+>)?|0x[0-9a-f]+|[,)]+$"
)
"""Names of nodes of autograd, which a compiled function has one of, and addresses. A tensor may be
printed in two lines because of the longer name."""
CLOSE, SMALL = 1e-3, 1e-4
"""The relative and absolute difference between printed numbers that rounding may explain."""
WORDS = "; "
"""What separates the lines that count."""
LONGEST = 160


def last_words(text: str) -> str:
    """Return the exceptions and failing tests that a script printed, or else its last line.

    Numbers and other text that differs between runs are left out.
    """
    found = {_without_numbers(line) for line in [*_exceptions(text), *FAILED_TEST.findall(text)]}
    if not found:
        lines = [line for line in text.splitlines() if line.strip() and not LOGGED.match(line)]
        found = {_without_numbers(line) for line in lines[-1:]}
    return WORDS.join(sorted(found))[:LONGEST]


def _exceptions(text: str) -> Iterator[str]:
    """Yield the first line of each exception in a text that did not lead to another."""
    for trace in text.split(TRACEBACK)[1:]:
        if not any(line.startswith(CHAINED) for line in trace.splitlines()):
            yield last_exception(TRACEBACK + trace).partition("\n")[0]


def _without_numbers(line: str) -> str:
    text = normalised(line)
    for pattern, other in NUMBERS:
        text = pattern.sub(other, text)
    return text
