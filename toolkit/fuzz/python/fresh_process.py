"""Runs a program in a forked process, whose caches are those of a given folder.

Nothing of the program was compiled in the parent, so that the child has only what is in the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from tcdebug.fuzz.python.execution import CallState
from tcdebug.fuzz.verdict import ProgramVerdict, failed
from tcdebug.minifier.judging.endings import outcome_of
from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork, fork_past_handlers
from tcdebug.minifier.processes.process import finished
from tcdebug.strategies.python.python_program import CodeLine, PythonProgram
from tcdebug.strategies.python.ways import CACHE_VARIABLES, NUMBER

Judge = Callable[[], tuple[ProgramVerdict, Sequence[CallState]]]


class ProcessAnswer(msgspec.Struct, frozen=True):
    """The verdict of a process, the bits that its calls left, and how many graphs each compiled."""

    verdict: ProgramVerdict
    bits: str = ""
    compiles: tuple[int, ...] = ()

    @property
    def left(self) -> tuple[object, ...]:
        """What must be equal in every process."""
        return self.bits, self.compiles


def in_fresh_process(judge: Judge, caches: Path) -> ProcessAnswer:
    """Judge a program in a process that reads and writes the caches in a folder."""

    def work(parent: Parent) -> bytes:
        os.environ.update({name: str(caches) for name in CACHE_VARIABLES})
        verdict, states = judge()
        return msgspec.json.encode(
            ProcessAnswer(verdict, bits_of(states), tuple(s.compiles for s in states))
        )

    ended = finished(fork(work, system_call=fork_past_handlers))
    if ended.answer is None:
        return ProcessAnswer(failed(outcome_of(ended)))
    return msgspec.json.decode(ended.answer, type=ProcessAnswer)


def bits_of(states: Sequence[CallState]) -> str:
    """Return a hash of the tensors that each call left, to the bit."""
    found = blake2b(digest_size=8)
    for state in states:
        for place, value in sorted(state.state.tensors.items()):
            found.update(f"{place} {value.shape} {value.dtype} {value.tolist()}".encode())
    return found.hexdigest()


def neighbour(program: PythonProgram) -> PythonProgram:
    """Return the program with other numbers. Its graphs differ only in constants."""
    definitions, body = (_renumbered(lines) for lines in (program.definitions, program.body))
    return msgspec.structs.replace(program, definitions=definitions, body=body)


def _renumbered(lines: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
    return tuple(
        CodeLine(NUMBER.sub(_larger, line.text), _renumbered(line.body), line.feature)
        for line in lines
    )


def _larger(found: re.Match[str]) -> str:
    return f"{int(found[1]) + 1}.{found[2]}"
