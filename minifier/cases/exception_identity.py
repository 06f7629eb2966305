"""The parts of an exception that are equal in all runs: its root cause, its message, its frame.

A repro script identifies its failure by the same rules, so it contains this module's text.
"""

from __future__ import annotations

import re
import subprocess
import traceback
from collections.abc import Iterator

GENERATED = re.compile(r"^[0-9a-z]{40,}\.py$")
"""Files that a compiler names after a hash of their contents."""
PLAIN = (
    (re.compile(r"^Triton Error \[CUDA\]: "), "CUDA error: "),
    (re.compile(r"^CUDA driver error: "), "CUDA error: "),
    (re.compile(r"^CUDA out of memory\..*"), "CUDA out of memory"),
    (re.compile(r"^CUDA error: out of memory.*"), "CUDA out of memory"),
    (re.compile(r"^(CUDA error: CU[A-Z]+_STATUS_[A-Z_]+).*"), r"\1"),
    (re.compile(r"(/[\w.+-]+)+/?"), "<path>"),
    (re.compile(r"(?:(?<!\w)|(?<=\b[bru]))'[^']*'(?!\w)"), "<name>"),  # not between apostrophes
    (re.compile(r"\"[^\"]*\"|\u2018[^\u2019]*\u2019"), "<name>"),
    (re.compile(r"(?<![\w.])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.I), "#"),
    (re.compile(r"\bNode %?[A-Za-z_]\w*"), "Node <name>"),
    (re.compile(r"\b(s|u|zf|zuf|ps|ks|tmp|buf|arg)\d+(?=_\d|\b)"), r"\1"),
    (re.compile(r"\b([A-Za-z_]+?)_\d+\b"), r"\1"),
    (re.compile(r"0x[0-9a-fA-F]+|((?<=[\s(\[=,:])-)?\b\d+(\.\d*)?(e[+-]?\d+)?(?!\w)"), "#"),
    (re.compile(r"#(, #)+(?=[\])])"), "#"),
    (re.compile(r"(?<!\w)\{[^{}]*\}"), "{...}"),
)
"""What differs between runs in a message, and what replaces it.

The message for one CUDA error depends on who reports it. Paths, quoted names, the names of nodes,
the numbers of symbolic sizes and generated names, digests, other numbers, how many stand in a list,
and the members of a set depend on the process, on the graph, or on its sizes.
"""
OF_FAKE_TENSORS = re.compile(
    r"(\w+ when making fake tensor call)\s+Explanation: .*?: got (\w+)\(\W(.*?)\W\)(?=\s+Hint:|$)",
    re.S,
)
"""The message for all exceptions of operators on fake tensors, whose second line has its own."""
OF_COMPILER = re.compile(
    r"(C\+\+ compile error)\n((?:.*\n)*?.*?: (?:fatal )?error: (.+))",
)
"""torch's report of an error of the C++ compiler: the command, and the compiler's output."""
WITH_ERROR = r"\1: \3\n\2"
"""What replaces such a report: the same with the first error of the compiler in its first line."""
LONGEST = 160
"""A message is cut to so many characters."""


def normalised(message: str) -> str:
    """Return the first line of a message without what differs between runs.

    If an operator failed on fake tensors, the message of its own exception counts too, and if a
    compiler did, its first error.
    """
    if found := OF_FAKE_TENSORS.match(message.strip()):
        return plain(f"{found[1]}: {found[2]}: {found[3]}")
    return plain(first_line(with_compiler_error(message)))


def with_compiler_error(text: str) -> str:
    """Return a text in which each report of a C++ compiler names the first error in its first line.

    Such a report shows the command first, and the output of the compiler after that.
    """
    return OF_COMPILER.sub(WITH_ERROR, text)


def first_line(message: str) -> str:
    """Return the first line of a message that is not empty, or an empty text."""
    return (message.strip().splitlines() or [""])[0]


def plain(line: str) -> str:
    """Return a line without what differs between runs."""
    for pattern, replacement in PLAIN:
        line = pattern.sub(replacement, line)
    return line[:LONGEST]


def short_file(filename: str) -> str:
    """Return the last two parts of a file name, because paths differ between machines."""
    *_, folder, name = ("", *filename.split("/"))
    return "<generated>" if GENERATED.search(name) else f"{folder}/{name}".lstrip("/")


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its causes, the original cause last."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "inner_exception", None)
        if not isinstance(inner, BaseException) or inner is current:
            inner = current.__cause__
        # how a compiler ended says nothing; the exception raised for it has what it wrote
        current = None if isinstance(inner, subprocess.CalledProcessError) else inner


def root_cause(error: BaseException) -> BaseException:
    """Return the original cause of an exception, behind the wrappers of Dynamo and tcdebug."""
    return list(causes(error))[-1]


def innermost_frame(error: BaseException) -> str:
    """Return the frame that raised an exception as file:function; empty if it was not raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{short_file(frames[-1].filename)}:{frames[-1].name}" if frames else ""
