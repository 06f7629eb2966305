"""Calls: Dynamo asks the gate about every call and comparison inside a statement, if wanted.

A refused call ends the capture: Dynamo breaks the graph at the call, which runs in eager with the
rest of the frame. Unlike a statement, a call may stand where Dynamo's symbolic stack holds values,
such as the iterator of a loop, the context manager of a `with`, or the rest of an expression.

There are many calls in a frame. They are asked about only if toggles limit their number, as in
`dynamo.call:1000`, or switch the unit off.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.output_graph import GraphCompileReason
from torch._dynamo.variables import WithExitFunctionVariable

from tcdebug.compiler.gate.toggles import Toggles

UNIT = "dynamo.call"

BREAKING = {
    "CALL", "CALL_KW", "CALL_FUNCTION_EX", "COMPARE_OP", "BINARY_SUBSCR", "STORE_ATTR",
    "STORE_SUBSCR",
}  # fmt: skip
"""The instructions at which Dynamo can break a graph whatever its stack holds."""
RESTORING = "SWAP"
"""The first instruction of the handler of a comprehension that is inlined, from Python 3.12."""


def asked_about(toggles: Toggles) -> bool:
    """Return whether toggles limit the number of calls, or allow none."""
    return UNIT in toggles.first or UNIT in toggles.off


def call_begins(translator: Any) -> Any | None:
    """Return the next instruction if it is a call at which the graph can break."""
    if translator.instruction_pointer is None or not translator.stack:
        return None
    instruction = translator.instructions[translator.instruction_pointer]
    if instruction.opname not in BREAKING or instruction.positions is None:
        return None
    called = translator.stack[-2 - (instruction.arg or 0) :]
    if any(map(_ends_a_with, called)):
        return None  # the end of a `with`, which eager code cannot take over
    return instruction if can_break(translator, instruction) else None


def can_break(translator: Any, instruction: Any) -> bool:
    """Return whether Dynamo can break the graph at an instruction, fullgraph aside.

    Each open `with` must be one that can be restored. A `try` needs no restoring: what resumes the
    frame is made of the function's own code, which has the handlers. A call that raises does so
    before the frame is resumed, and no handler of this function catches its exception.
    """
    before = translator.current_instruction, translator.one_graph
    translator.current_instruction, translator.one_graph = instruction, False
    try:
        with _without_try(translator, instruction):
            return bool(translator.should_compile_partial_graph())
    finally:
        translator.current_instruction, translator.one_graph = before


@contextlib.contextmanager
def _without_try(translator: Any, instruction: Any) -> Iterator[None]:
    """Let an instruction have no handler in this block, if no `with` is open there.

    Dynamo itself breaks no graph where an exception would go to the handler of a `try`. The handler
    of a comprehension that Python inlines restores variables from the stack, so it stays.
    """
    entry = instruction.exn_tab_entry
    inlined = entry is not None and entry.target.opname == RESTORING
    if entry is None or inlined or any(map(_ends_a_with, translator.stack)):
        yield
        return
    instruction.exn_tab_entry = None
    try:
        yield
    finally:
        instruction.exn_tab_entry = entry


def _ends_a_with(value: Any) -> bool:
    """Return whether a value of Dynamo's stack is the end of a `with` that is open."""
    return isinstance(value, WithExitFunctionVariable)


def end_at_call(translator: Any, step: Callable[[Any], bool]) -> bool:
    """Run a step that is a call as if Dynamo had found before that it cannot capture the call.

    The first time, Dynamo starts its analysis again. The second time, it breaks the graph.
    """
    speculate = translator.speculate

    @functools.wraps(speculate)
    def failed() -> Any:
        speculation = speculate()
        if not speculation.failed(translator):
            where = [translator.frame_summary()]
            speculation.reason = GraphCompileReason("switched off by tcdebug", where)
            speculation.fail_and_restart_analysis(False)
        return speculation

    translator.one_graph = False  # fullgraph allows no part of a graph
    translator.speculate = failed
    try:
        with _without_try(translator, translator.instructions[translator.instruction_pointer]):
            return step(translator)
    finally:
        del translator.speculate
