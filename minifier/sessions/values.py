"""Compares the values of a script's compiled graphs with eager, in the process that runs it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.entries import EntryCall, artifacts_savable, entries_wrapped
from tcdebug.minifier.capture.packages.observed_packages import packages_observed
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.sessions.execution import Broken, Finished
from tcdebug.minifier.targets.interception import compile_patched
from tcdebug.minifier.values.embedded import embedded_observed
from tcdebug.minifier.values.graph_check import GraphChecks
from tcdebug.minifier.values.inductor import inductor_observed
from tcdebug.minifier.values.observation import Observation


@contextlib.contextmanager
def values_observed(job: Job, log: EventLog) -> Iterator[None]:
    """Observe every compiled graph in this block, and write the report at its end.

    The first wrong value raises Finished in the script.
    """
    observation = Observation(
        Path(job.run_dir),
        log,
        job.script,
        job.wanted.oracle,
        job.twice,
        job.calls,
        _finished,
        _broken,
    )
    checks = GraphChecks(observation)
    with contextlib.ExitStack() as stack:
        stack.callback(observation.write)
        stack.callback(checks.explain)
        stack.enter_context(embedded_observed(observation))
        wrapping = _Wrapping(observation, checks, job.backend, stack)
        stack.enter_context(compile_patched(wrapping.wrap, log))
        stack.enter_context(entries_wrapped(wrapping.entered, log))
        stack.enter_context(artifacts_savable(log))
        stack.enter_context(packages_observed(checks, log))
        yield


def _finished() -> NoReturn:
    raise Finished


def _broken() -> NoReturn:
    traceback.print_exc()
    raise Broken


@dataclass
class _Wrapping:
    """Wraps the backends of a script. Inductor is imported when the script first compiles."""

    observation: Observation
    checks: GraphChecks
    forced: str | None
    stack: contextlib.ExitStack
    patched: bool = False

    def wrap(self, backend: Any) -> Any:
        """Return a backend whose graphs are also compared as a whole."""
        self._observe()
        return self.checks.wrap(self.forced or backend)

    def entered(self, call: EntryCall) -> None:
        """Observe a graph that the script gives to inductor itself. Inductor compiles it."""
        self._observe()

    def _observe(self) -> None:
        if not self.patched:
            self.patched = True
            self.stack.enter_context(inductor_observed(self.observation))
