"""Checks whether a captured graph that is reused is still right, or whether Dynamo lacks a guard.

Before the program calls a compiled function, the call is made in two forked children: one with the
program's graphs, and one in eager. Graphs run as captured, so later layers are not involved. If the
results differ, or anything the call can write, a third child captures everything again. A guard
is missing if the fresh capture agrees with eager and the reused graph does not. The finding is
reported only after a second round has confirmed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import CallChecked, GuardMissing
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.reuse.calls import compiled_calls
from tcdebug.minifier.reuse.differences import ValueDifference, differences
from tcdebug.minifier.reuse.graphs import Graphs, first_difference
from tcdebug.minifier.reuse.reachable import Reachable, reachable
from tcdebug.minifier.reuse.rerun import CallMode, CallResult, CompiledCall, read_result, start_call

LIMITS = Limits(seconds=120.0)
ALWAYS = 4
"""The number of first calls of a function that are checked in any case."""
MOST_CHANGES = 8
"""The limit on changed values in a finding."""


class CallFailed(Exception):
    """A call could not be made in a child; the message says why."""


@dataclass
class _History:
    """The past calls of a compiled function."""

    calls: int = 0
    captures: dict[str, str] | None = None
    """What the call that last captured could read, by path."""
    seen: set[int] = field(default_factory=set)
    """Hashes of the states before checked calls."""
    found: bool = False


@dataclass
class GuardCheck:
    """Checks the calls of this process."""

    log: EventLog
    graphs: Graphs = field(default_factory=Graphs)
    histories: dict[Any, _History] = field(default_factory=dict)
    """By code object, like Dynamo's cache."""
    inside: bool = False
    refused: set[str] = field(default_factory=set)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Check calls for the duration of this block."""
        with compiled_calls(self.call, self.log), self.graphs.following(self.log):
            yield

    def call(self, call: CompiledCall) -> Any:
        """Check a call, then make it."""
        if self.inside or self.graphs.rehearsing or torch.compiler.is_compiling():
            return call.compiled(*call.args, **call.kwargs)
        self.inside = True
        try:
            history = self._history(call)
            before = self._checked(call, history)
            captured = self.graphs.captured
            made = call.compiled(*call.args, **call.kwargs)
            if self.graphs.captured != captured:
                history.captures = before
            return made
        finally:
            self.inside = False

    def _history(self, call: CompiledCall) -> _History:
        function = getattr(call.function, "__func__", call.function)
        key = getattr(function, "__code__", None) or id(function)
        return self.histories.setdefault(key, _History())

    def _checked(self, call: CompiledCall, history: _History) -> dict[str, str]:
        """Check a call. Return what it can read, by path. Errors of the check are only logged."""
        try:
            before = reachable(call.roots())
            self._check(call, history, before)
            return before.paths()
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")
            return {}

    def _check(self, call: CompiledCall, history: _History, before: Reachable) -> None:
        history.calls += 1
        if history.captures is None or history.found:
            return  # nothing can be reused, or the finding is known
        state = hash(tuple(before.paths().items()))
        often = history.calls.bit_count() == 1 or history.calls <= ALWAYS
        if state in history.seen and not often:
            return
        history.seen.add(state)
        if reason := _why_unforkable():
            self._refuse(reason)
            return
        finding = self._finding(call, history, before)
        if finding is not None and self._finding(call, history, before) is not None:
            history.found = True
            self.log.emit(finding)
        verdict = "wrong" if history.found else "ok"
        self.log.emit(CallChecked("guards", _name(call), history.calls, verdict))

    def _finding(
        self, call: CompiledCall, history: _History, before: Reachable
    ) -> GuardMissing | None:
        reused, eager = self._run_in_children(call, [CallMode.REUSING, CallMode.EAGER], before)
        if next(differences(eager.state, reused.state), None) is None:
            return None
        (fresh,) = self._run_in_children(call, [CallMode.FRESH], before)
        found = next(differences(fresh.state, reused.state, eager.state), None)
        if found is None:
            return None
        return self._reported(call, history, before, found, reused, fresh)

    def _run_in_children(
        self, call: CompiledCall, modes: list[CallMode], before: Reachable
    ) -> list[CallResult]:
        """Make a call in several children in parallel."""
        children = [start_call(call, mode, self.graphs, before, LIMITS) for mode in modes]
        made = [finished(child).answer for child in children]
        if lacking := [mode for mode, answer in zip(modes, made, strict=True) if answer is None]:
            raise CallFailed(f"the child that made the {lacking[0]} call did not end normally")
        return [read_result(answer, before) for answer in made if answer is not None]

    def _reported(
        self, call: CompiledCall, history: _History, before: Reachable,
        found: ValueDifference, reused: CallResult, fresh: CallResult,
    ) -> GuardMissing:  # fmt: skip
        frame, line, was, now = first_difference(reused.called, fresh.called)
        changed = list(_changes(history.captures or {}, before.paths()))[:MOST_CHANGES]
        return GuardMissing(
            frame or _name(call), history.calls, found.path, found.detail, changed, line, was, now
        )

    def _refuse(self, reason: str) -> None:
        """Log, once per reason, that calls are not checked."""
        if reason not in self.refused:
            self.refused.add(reason)
            self.log.emit(Fallback("a call is not checked for missing guards", reason))


def _name(call: CompiledCall) -> str:
    function = call.function
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _why_unforkable() -> str:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return "CUDA is in use, and a process that uses it cannot be forked"
    return ""


def _changes(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """Yield what a call can read and has changed since the capture, the shortest path first."""
    paths = [p for p in [*before, *now] if before.get(p) != now.get(p)]
    for path in sorted(dict.fromkeys(paths), key=len):
        yield f"{path}: {before.get(path, 'nothing')} -> {now.get(path, 'nothing')}"
