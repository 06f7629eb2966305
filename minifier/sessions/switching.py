"""Compiles a script as it is, with any backend, under the toggles of the environment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tcdebug.compiler.backend import backend as embedded
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.entries import EntryCall, entry_compiled_by
from tcdebug.minifier.capture.exports import compiled_by
from tcdebug.minifier.cases.layer_names import AUTOGRAD
from tcdebug.minifier.targets import dynamo
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.ladder import BELOW, autograd_asked, rung


@contextlib.contextmanager
def captures_switched(toggles: Toggles, log: EventLog) -> Iterator[None]:
    """Apply toggles to what Dynamo captures, if every later layer is off.

    With a later layer on, a line that is not captured is not compiled either, and would be named
    for a fault of that layer.
    """
    if rung(toggles) != BELOW[AUTOGRAD]:
        yield
        return
    with dynamo.switched(toggles, log):
        yield


@dataclass
class Switching:
    """Applies toggles to all compiles of a process, and numbers their decisions consecutively."""

    toggles: Toggles
    log: EventLog
    forced: str | None
    """A backend that replaces the script's backends."""
    patches: contextlib.ExitStack
    counts: dict[str, int] = field(default_factory=dict)
    _switched: bool = False
    _autograd_switched: bool = False

    def package(self, program: Any, settings: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Return what runs in place of a program packaged by AOTInductor; None if it is packaged.

        The toggles are in force while it is compiled.
        """
        backend = self.wrap(INDUCTOR)
        if backend == INDUCTOR and not rung(self.toggles):
            return None
        return compiled_by(backend)(program, settings)

    def enter(self, call: EntryCall) -> Callable[..., Any] | None:
        """Return what runs in place of a graph given to inductor; None if it is compiled."""
        backend = self.wrap(INDUCTOR)
        return None if backend == INDUCTOR else entry_compiled_by(backend)(call)

    def wrap(self, backend: Any) -> Any:
        """Return what compiles instead of the backend that the script gave to torch.compile."""
        if autograd_asked(self.toggles) and not self._autograd_switched:
            from tcdebug.minifier.targets import autograd  # noqa: PLC0415 - start-up time

            self._autograd_switched = True
            self.patches.enter_context(autograd.switched(self.toggles, self.log))
        if stand_in := rung(self.toggles):
            return stand_in
        given = describe(self.forced or backend, "")
        if given.name == EMBEDDED:
            return partial(embedded, mode=given.mode, options=given.options, counts=self.counts)
        if not self._switched:
            from tcdebug.minifier.targets import inductor  # noqa: PLC0415 - start-up time

            self._switched = True
            self.patches.enter_context(inductor.switched(self.toggles, self.log, self.counts))
        return self.forced or backend
