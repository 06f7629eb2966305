"""Lines: Dynamo asks the gate about every statement of a frame before it captures the statement.

A refused statement ends the capture: Dynamo breaks the graph before it, and the rest of the frame
runs in eager. Allowing the first n statements therefore captures a prefix of the frame. Dynamo can
break only where its symbolic stack is empty and every open block can be restored. The code between
two such places (the body of a `for`, the lines of one expression) counts as one statement. A
statement in a `try` is one of its own, unless the `try` is inside such code, and so is one of a
`finally` that no exception leads to. A handler belongs to the statement that raises. A frame whose
first statement is refused is not captured.

Dynamo restarts its analysis when it discovers something late. Each statement is therefore asked
about once per code object, however often it is analysed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from torch._dynamo.exc import SkipFrame
from torch._dynamo.symbolic_convert import InstructionTranslator

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.targets.dynamo import call
from tcdebug.minifier.targets.dynamo.source_line import begins_try, expression, subject

UNIT = "dynamo.line"

STEP = Patch(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase",
    "step",
    f"{UNIT} cannot be switched off",
)
PATCHES = (STEP,)

IDLE = {"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "NOP", "JUMP_FORWARD"}
"""Instructions that have the line number of a statement but execute nothing of it."""


@contextlib.contextmanager
def lines(gate: Gate, log: EventLog, cut: set[CodeType], broken: set[CodeType]) -> Iterator[None]:
    """Ask about every statement of a captured frame. The first refusal ends the capture.

    The code of a frame whose capture ended this way is added to `cut`, and to `broken` if a part
    of it was captured.
    """
    answers: dict[tuple[CodeType, int], bool] = {}
    called: dict[tuple[CodeType, int], bool] = {}
    first: dict[CodeType, int] = {}
    calls = call.asked_about(gate.toggles)

    def call_allowed(code: CodeType, instruction: Any) -> bool:
        key = code, instruction.offset
        if key not in called:
            called[key] = gate.allows(call.UNIT, expression(code, instruction.positions))
        return called[key]

    def asking(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
        @functools.wraps(original)
        def step(self: Any) -> bool:
            if not isinstance(self, InstructionTranslator):
                return original(self)
            code, line = self.f_code, _line_begins(self)
            if line is not None:
                first.setdefault(code, line)
            if line is None or not (line == first[code] or _can_break(self)):
                found = call.call_begins(self) if calls else None
                if found is None or call_allowed(code, found):
                    return original(self)
                cut.add(code)
                broken.add(code)
                return call.end_at_call(self, original)
            if (code, line) not in answers:
                answers[code, line] = gate.allows(UNIT, subject(code, line))
            if answers[code, line]:
                return original(self)
            cut.add(code)
            if line == first[code]:
                raise SkipFrame("switched off by tcdebug")
            broken.add(code)
            return _end_here(self)

        return step

    with patched(STEP, asking, log):
        yield


def _line_begins(translator: Any) -> int | None:
    """Return the line that the next instruction begins to execute, if it begins one."""
    if translator.instruction_pointer is None or translator.stack:
        return None
    instruction = translator.instructions[translator.instruction_pointer]
    line: int | None = instruction.starts_line
    if not line or (
        instruction.opname in IDLE and not begins_try(translator.f_code.co_filename, line)
    ):
        return None
    return line


def _can_break(translator: Any) -> bool:
    """Return whether the graph can break before the next instruction."""
    return call.can_break(translator, translator.instructions[translator.instruction_pointer])


def _end_here(translator: Any) -> bool:
    """Break the graph before the next instruction, by means of Dynamo's own speculation."""
    instruction = translator.instructions[translator.instruction_pointer]
    translator.current_instruction = instruction
    translator.instruction_pointer += 1
    translator.one_graph = False  # fullgraph allows no part of a graph
    speculation = translator.speculate()
    translator.current_speculation = speculation
    if not speculation.failed(translator):
        speculation.fail_and_restart_analysis(translator.error_on_graph_break)
    translator.step_graph_break(instruction)
    return False
