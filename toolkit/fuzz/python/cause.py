"""How a failure of a Python program with a known cause is recognised.

A cause shows itself in many features and in several ways. A failure has a listed cause if its small
program contains the construct and passes without it, or if its message is that of the cause. A
construct that cannot be taken away must be that of the only feature that the failure needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tcdebug.fuzz.findings import is_vague
from tcdebug.strategies.python.python_program import CodeLine, PythonProgram
from tcdebug.strategies.python.ways import COMPILE

BETWEEN = "between forward and backward"
"""A construct: statements there."""
STALE = "stale graph"
WRONG = r"\| (stale graph: )?(wrong|other bits)"


@dataclass(frozen=True)
class ListedCause:
    """The cause of the finding `name`.

    `construct` is a pattern or BETWEEN. If `changes`, statements between calls that match
    are the construct. `instead` is the text that takes its place; None if it cannot be taken away.
    `said` is a pattern of the signature and message of its failures, `needs` one of the source of
    the program, and `way` one of the way to compile it.
    """

    name: str
    construct: str
    instead: str | None = None
    said: str = WRONG
    changes: bool = False
    needs: str = ""
    way: str = ""

    def without(self, program: PythonProgram) -> PythonProgram:
        """Return the program without the construct; the same if it has none."""
        steps = program.steps
        if self.construct == BETWEEN:
            steps = tuple(msgspec.structs.replace(step, between=()) for step in steps)
            return msgspec.structs.replace(program, steps=steps)
        if self.changes:
            steps = tuple(
                msgspec.structs.replace(
                    step, lines=tuple(t for t in step.lines if not re.search(self.construct, t))
                )
                for step in steps
            )
            return msgspec.structs.replace(program, steps=steps)
        steps = tuple(
            msgspec.structs.replace(
                step, lines=tuple(map(self._replaced, step.lines)), mode=self._replaced(step.mode)
            )
            for step in steps
        )
        return msgspec.structs.replace(
            program, definitions=self._mapped(program.definitions), body=self._mapped(program.body),
            steps=steps,
        )  # fmt: skip

    def explains(
        self, program: PythonProgram, signature: str, message: str,
        passes: Callable[[PythonProgram], bool],
    ) -> bool:  # fmt: skip
        """Return whether a failure has this cause. `passes` judges a program again."""
        if not re.search(self.said, f"{signature}\n{message}", re.DOTALL):
            return False
        if not (re.search(self.needs, program.source()) and re.search(self.way, program.way)):
            return False
        if self.instead is not None:
            without = self.without(program)
            return without != program and passes(without)
        if not is_vague(signature):
            return re.search(self.construct, program.source()) is not None
        alone = len(program.causes) == 1 and program.way == COMPILE
        function = "\n".join(line.rendered() for line in program.body)
        return alone and re.search(self.construct, function) is not None

    def _replaced(self, text: str) -> str:
        return re.sub(self.construct, self.instead or "", text)

    def _mapped(self, lines: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
        return tuple(
            CodeLine(self._replaced(line.text), self._mapped(line.body), line.feature)
            for line in lines
        )
