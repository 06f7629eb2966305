"""Judges programs in a warm child process. If a program ends the child, the next one is forked.

A program therefore costs a compile instead of a fork. A segfault, a hang or excessive memory is the
verdict on the program that caused it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from tcdebug.fuzz.verdict import ProgramVerdict, Status, failed
from tcdebug.minifier.judging.endings import outcome_of
from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Child, Ended, Limits
from tcdebug.strategies.kinds import AnyProgram

Notify = Callable[[str], None]
LIFETIME = 150
"""Number of programs per child. What they leave behind ends with the child."""


class Enough(BaseException):
    """The seconds or examples are used up. Leaves a round past every `except Exception`."""


class NothingCompiles(Exception):
    """A child compiles nothing any more, so that its programs pass whatever is wrong.

    `programs` are the one before, if there was one, and the one of which nothing was compiled. One
    of them has left something behind.
    """

    def __init__(self, programs: Sequence[AnyProgram]) -> None:
        super().__init__("a process that judges programs compiles nothing any more")
        self.programs = programs


class ProgramJudge(Protocol):
    """Judges a program in the current process."""

    def __call__(self, program: AnyProgram, notify: Notify) -> ProgramVerdict: ...


class ProgramRunner:
    """A judge that works in a child process."""

    def __init__(
        self,
        judge: ProgramJudge,
        limits: Limits,
        output: Path,
        prepare: Callable[[], None] = lambda: None,
        until: float | None = None,
    ) -> None:
        self.judge = judge
        self.limits = limits
        self.output = output
        self.prepare = prepare
        """Called first in each child."""
        self.until = until
        """The time at which the program that is being judged is left without a verdict."""
        self._child: Child | None = None
        self._served = 0
        self._before: tuple[AnyProgram, ...] = ()

    def __call__(self, program: AnyProgram) -> ProgramVerdict:
        """Judge a program. Raises NothingCompiles, and Enough if the time ends before the verdict.

        A failure in a used child must occur again in a new one. Otherwise an earlier program or
        chance caused it, and it is discarded. A child in which a program failed is not used again.
        A failure of the next program, as a shrinker tries it, is then the first thing that its
        child does, and counts at once.
        """
        verdict = self._judged(program)
        if not verdict.compiles:
            self.close()
            raise NothingCompiles([*self._before, program])
        self._before = (program,)
        if verdict.status is Status.FAILED and self._served > 1:
            self.close()
            again = self._judged(program)
            if again.status is Status.PASSED:
                message = f"passes in a process of its own: {verdict.signature}"
                return msgspec.structs.replace(again, status=Status.DISCARDED, message=message)
            verdict = again
        if verdict.status is Status.FAILED:
            self.close()
        return verdict

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _judged(self, program: AnyProgram) -> ProgramVerdict:
        """Return the child's verdict. If the child dies, that is the verdict on its program."""
        if self._served >= LIFETIME:
            self.close()
        reply = self._asked(program)
        if isinstance(reply, Ended) and self._served > 1 and not reply.phase:
            reply = self._asked(program)  # the child died before it began with this program
        if isinstance(reply, Ended):
            return failed(outcome_of(reply))
        return reply

    def _asked(self, program: AnyProgram) -> ProgramVerdict | Ended:
        """Return the child's answer for a program, or how the child ended. Raises Enough."""
        if self._child is None:
            self._child, self._served = fork(self._serve, self.limits, self.output), 0
        self._served += 1
        began = time.monotonic()
        self._child.limits = limits = self._limits(began)
        reply = self._child.ask(msgspec.json.encode(program))
        if isinstance(reply, Ended):
            self._child = None
            if reply.timed_out and limits != self.limits:
                raise Enough
            return reply
        verdict = msgspec.json.decode(reply, type=ProgramVerdict)
        if verdict.device_lost:
            self.close()
        return msgspec.structs.replace(verdict, seconds=round(time.monotonic() - began, 3))

    def _limits(self, now: float) -> Limits:
        """Return the limits of a program that is judged from now on."""
        if self.until is None or now + self.limits.seconds < self.until:
            return self.limits
        left = max(0.0, self.until - now)
        return msgspec.structs.replace(self.limits, seconds=left, excuse=0.0)

    def _serve(self, parent: Parent) -> bytes:
        """In the child: judge the programs that the parent sends."""
        self.prepare()
        while (request := parent.request()) is not None:
            verdict = self.judge(msgspec.json.decode(request, type=AnyProgram), parent)
            parent.reply(msgspec.json.encode(verdict))
        return b""
