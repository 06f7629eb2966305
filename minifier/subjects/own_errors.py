"""Tells whether a script that raises in eager and, differently, compiled has one error of its own.

Dynamo reports an error of the program as one of its own (a wrong shape as `TorchRuntimeError`), and
a compiled graph raises another exception than the operator in eager. The exceptions then differ,
but not the place in the program. It reads printed tracebacks and does not import torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from tcdebug.minifier.cases.outcome import GENERATED
from tcdebug.minifier.cases.user_frames import (
    TRACEBACK,
    folders_of_torch,
    last_exception,
    lines_of_error,
)

FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>\S+)'
    r'(?:\n +(?!File ")(?P<code>.+))?',
    re.MULTILINE,
)
IDENTITY = "minifier/capture/identity.py"
"""The file of tcdebug with the frame in which a function that the script compiles runs in eager."""
ENTRANCE = "_dynamo/eval_frame.py"
"""The file of torch with the frame in which a compiled function runs."""
RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""The name that Dynamo gives to the rest of a function after a graph break."""
RAISING = ("raise ", "raise\n", "assert ", "assert(")
"""How a line begins that raises an exception of its own choice."""
NO_MESSAGE = "assertion error"
"""What Dynamo says of an assertion that has no message."""
COUNTERS = re.compile(
    r"\b(_dynamo\.utils\b.*\bcounters|CompileCounter\w*|frame_count|unique_graphs|compile_times|"
    r"generated_kernel_count|num_graph_breaks|CompilationMetrics|is_compiling)\b"
)
"""What torch counts while it compiles, and how a program asks whether it is compiled."""


@dataclass(frozen=True)
class RaisingFrame:
    """A frame of a printed traceback."""

    file: str
    line: int
    function: str
    code: str

    @property
    def place(self) -> str:
        """The line as FILE:N."""
        return f"{self.file}:{self.line}"

    @property
    def raises(self) -> bool:
        """Whether the line is a statement that raises an exception of its own choice."""
        return f"{self.code}\n".startswith(RAISING)


def raised_alike(eager: str, compiled: str) -> bool:
    """Return whether a function that a script compiles raises at one place in two runs.

    `eager` and `compiled` are the outputs of a run in eager and of one as the script is.
    """
    stack = _frames(eager)
    users = [frame for frame in stack if _is_users(frame)]
    if reported := lines_of_error(compiled):  # Dynamo raised, and names the program's own lines
        return any(reported[0].startswith(f"{frame.place} ") for frame in users)
    inside = [f for f in _within(stack, IDENTITY) if _is_users(f)]
    reached = [frame for frame in _within(_frames(compiled), ENTRANCE) if _is_users(frame)]
    if not inside or not reached:
        return False
    raised = (reached[-1].file, reached[-1].function)
    if raised not in {(frame.file, frame.function) for frame in inside}:
        return False
    return not inside[-1].raises or _message(eager) in last_exception(compiled)


def may_count_compiles(eager: str, source: str) -> bool:
    """Return whether a script may fail in eager only because nothing is compiled there.

    `eager` is the output of a run in eager that failed, `source` the text of the script. Such a
    script reads what torch counts, or has a backend of its own, which eager does not call, and an
    assertion outside compiled functions, or its exit status, says that it fails.
    """
    if not (COUNTERS.search(source) or _has_own_backend(source)):
        return False
    stack = _frames(eager)
    if not stack:
        return True  # an exit status
    return not _within(stack, IDENTITY) and stack[-1].raises


def _has_own_backend(source: str) -> bool:
    """Return whether a script gives torch.compile a backend that it defines itself."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return False
    kinds = (ast.FunctionDef, ast.ClassDef)
    defined = {node.name for node in nodes if isinstance(node, kinds)}
    return not defined.isdisjoint(_names_of_backends(nodes))


def _names_of_backends(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names in the values of arguments `backend`, and what they were assigned from."""
    values = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "backend"]
    used = {name.id for v in values for name in ast.walk(v) if isinstance(name, ast.Name)}
    yield from used
    for node in nodes:
        if isinstance(node, ast.Assign) and used & {getattr(t, "id", "") for t in node.targets}:
            yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))


def _frames(text: str) -> list[RaisingFrame]:
    """Return the frames of the last traceback in a text, the outermost first."""
    _, found, rest = text.rpartition(TRACEBACK)
    return [
        RaisingFrame(
            match["file"],
            int(match["line"]),
            RESUMED.sub(r"\1", match["name"]),
            (match["code"] or "").strip(),
        )
        for match in FRAME.finditer(rest if found else "")
    ]


def _within(stack: list[RaisingFrame], file: str) -> list[RaisingFrame]:
    """Return the frames inside the first frame of a file; none if there is no such frame."""
    places = [n for n, frame in enumerate(stack) if frame.file.endswith(file)]
    return stack[places[0] + 1 :] if places else []


def _is_users(frame: RaisingFrame) -> bool:
    """Return whether a frame is in a function outside torch and outside generated code."""
    if frame.function == "<module>" or GENERATED.search(PurePath(frame.file).name):
        return False
    return not frame.file.startswith(("<", *folders_of_torch()))


def _message(text: str) -> str:
    """Return the first line of the message of the last exception in a text."""
    name, _, message = last_exception(text).partition("\n")[0].partition(": ")
    return message or (NO_MESSAGE if name == "AssertionError" else name)
