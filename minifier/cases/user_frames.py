"""Reads exceptions and the user's lines from printed tracebacks. It does not import torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile

from tcdebug.minifier.cases.exception_identity import with_compiler_error

FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?'
    r'(?:\n +(?!File ")(?P<code>.+))?',
    re.MULTILINE,
)
TRACEBACK = "Traceback (most recent call last):"
LIMIT = re.compile(
    r"hit config\.\w+_limit \((?P<times>\d+)\)\n"
    r".*?function: '(?P<function>[^']+)' \((?P<place>[^\n]+)\)\n"
    r".*?last reason: \S+: (?P<guard>[^\n]+?)(?:  +#[^\n]*)?$",
    re.MULTILINE,
)
"""The warning with which Dynamo stops compiling a function."""
FORBIDDEN = re.compile(
    r"(?:filename: '(?P<file>[^']*)', function name: '(?P<name>[^']*)', line number: (?P<line>\d+)"
    r"|Recompiling function (?P<function>\S+) in (?P<place>[^\n]+))\n"
    r"\s*triggered by the following guard failure\(s\):\n"
    r"\s*- (?:\d+/\d+: )?(?P<guard>[^\n]+?)(?:  +#[^\n]*)?$",
    re.MULTILINE,
)
"""The error of a stance or setting that forbids to compile a function again."""
RESUMED = re.compile(r"^(?:torch_dynamo_resume_in_)+(\w+?)(?:_at_\d+)+$")
"""The name of the rest of a function, which Dynamo captures after a graph break."""
GENERATED = "<eval_with_key>"
"""How the file of the code of a graph module begins."""
OF_THE_USER = "from user code:\n"
"""The text that Dynamo writes before the stack of the program it was capturing."""


@dataclass(frozen=True)
class TracebackFrame:
    """A frame of a printed traceback. `function` and `code` are empty if they were not printed."""

    file: str
    line: int
    function: str
    code: str

    @property
    def place(self) -> str:
        """The line as FILE:N."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        if self.file.startswith(GENERATED):
            return f"line {self.line} of a generated graph, in {self.function}: {self.code}"
        return f"{self.place} in {self.function}: {self.code}"


def frames(text: str) -> Iterator[TracebackFrame]:
    """Yield the frames that a text shows, the outermost first."""
    for match in FRAME.finditer(text):
        code = (match["code"] or "").strip()
        function = RESUMED.sub(r"\1", match["function"] or "")
        yield TracebackFrame(match["file"], int(match["line"]), function, code)


def lines_of_error(text: str) -> list[str]:
    """Return the user's lines at which Dynamo reports an error, the innermost first.

    If the output holds several such stacks, the last one counts. Lines inside torch are left out.
    """
    shown = [frame for frame in frames(stack_of_user(text)) if frame.code]
    return [str(frame) for frame in reversed(outside_torch(shown))]


def stack_of_user(text: str) -> str:
    """Return the stack of the program that Dynamo printed last; empty if there is none."""
    _, found, rest = text.rpartition(OF_THE_USER)
    return rest.partition("\n\n")[0] if found else ""


def guard_at_limit(text: str) -> str:
    """Say which function Dynamo does not compile again, and the guard that failed; or nothing."""
    reached = list(LIMIT.finditer(text))
    if not reached:
        return _guard_of_forbidden(text)
    found = reached[-1]
    return (
        f"{found['function']} ({found['place']}) had been compiled {found['times']} times; "
        f"the guard that failed last is {found['guard']}"
    )


def _guard_of_forbidden(text: str) -> str:
    """Say which function may not be compiled again, and the guard that asks for it; or nothing."""
    raised = list(FORBIDDEN.finditer(text))
    if not raised:
        return ""
    found = raised[-1]
    function = found["function"] or found["name"]
    place = found["place"] or f"{found['file']}:{found['line']}"
    return (
        f"{function} ({place}) may not be compiled again in this script; "
        f"the guard of its newest code that fails is {found['guard']}"
    )


def innermost_line(trace: str) -> str:
    """Return the user's innermost line of a stack trace as FILE:N; empty if there is none."""
    found = innermost(list(frames(trace)))
    return found.place if found else ""


def innermost(stack: Sequence[TracebackFrame]) -> TracebackFrame | None:
    """Return the user's innermost frame; None if there is none.

    A frame inside torch counts only if all frames are.
    """
    return next(iter(reversed(outside_torch(stack) or stack)), None)


def outside_torch(stack: Sequence[TracebackFrame]) -> list[TracebackFrame]:
    """Return the frames of a stack that are neither in torch nor in code that it generates."""
    inside = (*folders_of_torch(), GENERATED)
    return [frame for frame in stack if not frame.file.startswith(inside)]


def folders_of_torch() -> tuple[str, ...]:
    """Return the folders of torch, each with a separator at its end."""
    spec = find_spec("torch")
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return tuple(os.path.join(location, "") for location in locations)


def last_exception(text: str) -> str:
    """Return the exception of the last traceback, with its message up to an empty line.

    If a C++ compiler failed, its first error belongs to it. Empty if there is no traceback.
    """
    _, found, rest = text.rpartition(TRACEBACK)
    lines = rest.splitlines() if found else []
    for place, line in enumerate(lines):
        if line and not line[0].isspace() and not line.startswith(("tcdebug:", "The above")):
            shown = with_compiler_error("\n".join(lines[place:]))
            return "\n".join(takewhile(bool, shown.splitlines()))
    return ""


def raising_stack(text: str) -> list[TracebackFrame]:
    """Return the frames of the last traceback, the outermost first, without those in its message.

    Dynamo's messages end with the user's stack.
    """
    _, found, rest = text.rpartition(TRACEBACK)
    lines = rest.splitlines() if found else []
    return list(frames("\n".join(takewhile(lambda line: not line or line[0].isspace(), lines))))


def raising_statement(text: str) -> str:
    """Return the line at which the last traceback ends; empty if there is none."""
    lines = [frame.code for frame in raising_stack(text) if frame.code]
    return lines[-1] if lines else ""
