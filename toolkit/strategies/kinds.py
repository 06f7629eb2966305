"""The kinds of programs that can be fuzzed. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tcdebug.strategies.program import Program, script
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_script import python_script

AnyProgram = Program | PythonProgram


class ProgramKind(StrEnum):
    """What is drawn: graphs of operators, or Python functions with the state that they use."""

    GRAPHS = "graphs"
    PYTHON = "python"


def script_of(program: AnyProgram, call: Mapping[str, object], seed: int) -> str:
    """Return the program as a script that fails if compiled differs from eager."""
    if isinstance(program, PythonProgram):
        return python_script(program, call)
    return script(program, call, seed)
