"""Judges programs in a warm child that lives on; when a program ends it, the next one is forked.

So a program costs its compile and not a fork, and a segfault, a hang or too much memory is the
verdict on the program that brought it about.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from tcdebug.fuzz.verdict import ProgramVerdict, Status, failed
from tcdebug.minifier.judging.endings import outcome_of
from tcdebug.minifier.processes.isolation import POLL, Child, Limits, start
from tcdebug.strategies.program import Program

Notify = Callable[[str], None]
ANSWER = "="
"""How a verdict begins among the phases that a child tells."""
LIFETIME = 150
"""Programs that one child judges; what they leave behind in it goes with it."""
HEADER = 8


class ProgramJudge(Protocol):
    """Says what becomes of a program, in this very process."""

    def __call__(self, program: Program, notify: Notify) -> ProgramVerdict: ...


class ProgramRunner:
    """A judge whose work is done in a child."""

    def __init__(self, judge: ProgramJudge, limits: Limits, output: Path) -> None:
        self.judge = judge
        self.limits = limits
        self.output = output
        self._child: Child | None = None
        self._requests = -1
        self._served = 0

    def __call__(self, program: Program) -> ProgramVerdict:
        """Judge a program; what fails in a child that had others before has to fail in a new one.

        What does not was brought about by the programs before, or by chance: it is discarded.
        """
        verdict = self._judged(program)
        if verdict.status is not Status.FAILED or self._served == 1:
            return verdict
        self.close()
        again = self._judged(program)
        if again.status is Status.PASSED:
            message = f"passes in a process of its own: {verdict.signature}"
            return msgspec.structs.replace(again, status=Status.DISCARDED, message=message)
        return again

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            os.close(self._requests)
            self._child.end()
            self._child = None

    def _judged(self, program: Program) -> ProgramVerdict:
        if self._served >= LIFETIME:
            self.close()
        if self._child is None:
            self._fork()
        self._served += 1
        assert self._child is not None
        child = self._child
        child.left, child.phase = self.limits.seconds, ""
        began = time.monotonic()
        request = msgspec.json.encode(program)
        os.write(self._requests, len(request).to_bytes(HEADER, "little") + request)
        while not child.phase.startswith(ANSWER):
            looked = time.monotonic()
            ready, _, _ = select.select([child.pipe], [], [], POLL)
            if child.look(bool(ready), time.monotonic() - looked):
                return self._death(child)
        verdict = msgspec.json.decode(child.phase.removeprefix(ANSWER), type=ProgramVerdict)
        return msgspec.structs.replace(verdict, seconds=round(time.monotonic() - began, 3))

    def _death(self, child: Child) -> ProgramVerdict:
        """The verdict on the program that ended a child, which may have been its first."""
        os.close(self._requests)
        self._child = None
        return failed(outcome_of(child.end()))

    def _fork(self) -> None:
        reader, writer = os.pipe()

        def work(notify: Notify) -> bytes:
            os.close(writer)
            while header := os.read(reader, HEADER):
                text = _read(reader, int.from_bytes(header, "little"))
                verdict = self.judge(msgspec.json.decode(text, type=Program), notify)
                notify(ANSWER + msgspec.json.encode(verdict).decode())
            return b""

        self._child = start(work, self.limits, self.output)
        os.close(reader)
        self._requests, self._served = writer, 0


def _read(pipe: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = os.read(pipe, length)
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
