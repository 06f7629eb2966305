"""Recognises an error of the script itself, although eager and compiled code raise differently.

Dynamo wraps an error of the program in its own exception (a wrong shape in `TorchRuntimeError`),
and a compiled graph may raise another exception than the operator in eager. The exceptions then
differ, but the line of the program is the same. This module reads printed tracebacks; it does not
import torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from tcdebug.minifier.cases.exception_identity import GENERATED
from tcdebug.minifier.cases.user_frames import (
    TracebackFrame,
    folders_of_torch,
    innermost_line,
    last_exception,
    lines_of_error,
    raising_stack,
    stack_of_user,
)
from tcdebug.minifier.trace.raised_calls import LEAST_MESSAGE, WRAPPERS
from tcdebug.minifier.trace.statements import chooses_exception

IDENTITY = "minifier/capture/identity.py"
"""The file of tcdebug whose frame calls a compiled function of the script in eager."""
ENTRANCE = "_dynamo/eval_frame.py"
"""The file of torch whose frame calls a compiled function."""
RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""The name of the function that Dynamo generates for the code after a graph break."""
NO_MESSAGE = "assertion error"
"""Dynamo's message for an assertion without a message."""
VARYING = re.compile(r" Hint: .*|\b\w+(?=Backward\d*\b)")
"""What differs in the messages of one error: autograd's advice, and the name of a function."""
COUNTERS = re.compile(
    r"\b(_dynamo\.utils\b.*\bcounters|CompileCounter\w*|frame_count|unique_graphs|compile_times|"
    r"generated_kernel_count|num_graph_breaks|CompilationMetrics|is_compiling)\b"
)
"""Names of torch's counters of compiles, and of functions that tell whether code is compiled."""


def raised_alike(eager: str, compiled: str) -> bool:
    """Return whether a compiled function of a script raises at the same line in two runs.

    An error of autograd is raised where the script calls `backward` in eager, and where the
    function is called if AOTAutograd traces its gradient. Dynamo's exception contains its message.
    `eager` and `compiled` are the outputs of a run in eager and of a run of the unchanged script.
    """
    stack = _frames(eager)
    if stack and _wraps(compiled, eager) and not (_is_of_program(stack[-1]) and _raises(stack[-1])):
        return True
    users = [frame for frame in stack if _is_users(frame)]
    if reported := lines_of_error(compiled):  # Dynamo raised, and names the program's own lines
        return any(reported[0].startswith(f"{frame.place} ") for frame in users)
    called = _within(stack, IDENTITY)
    if place := innermost_line(stack_of_user(compiled)):  # what is compiled is a module of torch
        return any(frame.place == place for frame in called)
    inside = [f for f in called if _is_users(f)]
    reached = [frame for frame in _within(_frames(compiled), ENTRANCE) if _is_users(frame)]
    if not inside or not reached:
        return False
    raised = (reached[-1].file, reached[-1].function)
    if raised not in {(frame.file, frame.function) for frame in inside}:
        return False
    return not _raises(inside[-1]) or _message(eager) in last_exception(compiled)


def _wraps(compiled: str, eager: str) -> bool:
    """Return whether the last exception of one text is Dynamo's, and contains that of the other."""
    outer, inner = last_exception(compiled), last_exception(eager).partition("\n")[0]
    if not outer.startswith(WRAPPERS) or len(_message(eager)) < LEAST_MESSAGE:
        return False
    error = VARYING.sub("", inner)
    lines = [VARYING.sub("", line) for line in outer.splitlines()]
    return any(line == error or line.endswith(f": {error}") for line in lines)


def ended_alike(one: str, other: str) -> bool:
    """Return whether two runs of a script, given by their outputs, raise at the same statement."""
    here, there = (
        [frame.place for frame in _frames(text) if _is_of_program(frame)] for text in (one, other)
    )
    return bool(here) and here == there


def may_count_compiles(eager: str, source: str) -> bool:
    """Return whether a script may fail in eager only because nothing is compiled there.

    `eager` is the output of a run in eager that failed, `source` the text of the script. Such a
    script reads torch's counters or defines a backend, which eager does not call. It fails by an
    assertion outside compiled functions or by its exit status.
    """
    if not (COUNTERS.search(source) or _has_own_backend(source)):
        return False
    stack = _frames(eager)
    if not stack:
        return True  # an exit status
    return not _within(stack, IDENTITY) and _raises(stack[-1])


def _has_own_backend(source: str) -> bool:
    """Return whether a script passes torch.compile a backend that it defines."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return False
    kinds = (ast.FunctionDef, ast.ClassDef)
    defined = {node.name for node in nodes if isinstance(node, kinds)}
    return not defined.isdisjoint(_names_of_backends(nodes))


def _names_of_backends(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names in `backend=` arguments, and the names that were assigned to those."""
    values = [n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "backend"]
    used = {name.id for v in values for name in ast.walk(v) if isinstance(name, ast.Name)}
    yield from used
    for node in nodes:
        if isinstance(node, ast.Assign) and used & {getattr(t, "id", "") for t in node.targets}:
            yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))


def _frames(text: str) -> list[TracebackFrame]:
    """Return the frames of the last traceback in a text, the outermost first."""
    return [
        replace(frame, function=RESUMED.sub(r"\1", frame.function))
        for frame in raising_stack(text)
        if frame.function
    ]


def _raises(frame: TracebackFrame) -> bool:
    """Return whether the line of a frame is a statement that raises an exception of its choice."""
    return chooses_exception(frame.file, frame.line, frame.code)


def _within(stack: list[TracebackFrame], file: str) -> list[TracebackFrame]:
    """Return the frames inside the first frame of a file; none if there is no such frame."""
    places = [n for n, frame in enumerate(stack) if frame.file.endswith(file)]
    return stack[places[0] + 1 :] if places else []


def _is_users(frame: TracebackFrame) -> bool:
    """Return whether a frame is in a function of the program, not in torch or generated code."""
    return frame.function != "<module>" and _is_of_program(frame)


def _is_of_program(frame: TracebackFrame) -> bool:
    """Return whether a frame is in a file of the program."""
    if GENERATED.search(PurePath(frame.file).name):
        return False
    return not frame.file.startswith(("<", *folders_of_torch()))


def _message(text: str) -> str:
    """Return the first line of the message of the last exception in a text."""
    name, _, message = last_exception(text).partition("\n")[0].partition(": ")
    return message or (NO_MESSAGE if name == "AssertionError" else name)
