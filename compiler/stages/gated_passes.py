"""Supervises gated passes: asks the gate, times each pass, and keeps the graph that it leaves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CompileFail, Fallback, PassRan
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.gated import FAMILY, PassRun
from tcdebug.compiler.stages.graph_text import GraphText


def _no_scope(unit: str, required: bool) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class GatedPasses:
    """The gated passes of the compiles that share a gate. Implements `PassSupervisor`."""

    gate: Gate
    log: EventLog
    inside: Callable[[str, bool], AbstractContextManager[None]] = _no_scope
    """Entered around a pass, with its unit and whether it is required."""
    direction: Callable[[], str] = lambda: ""
    """The graph that is being compiled: joint, forward, backward or inference."""
    _texts: GraphText = field(default_factory=GraphText)

    @contextlib.contextmanager
    def around(self, run: PassRun) -> Iterator[None]:
        """Decide about a run, and record its time, its result or its exception."""
        log = self._bound(run.unit)
        if run.graph is None:
            why = "it takes no graph, and no `otherwise` is given"
            log.emit(Fallback(f"{run.unit} is always on", why))
        run.allowed = run.required or self.gate.allows(run.unit, run.subject)
        given = _graph(run.graph)
        before, text_before = _size(given), self._text(given)
        start = time.perf_counter()
        try:
            with self.inside(run.unit, run.required):
                yield
        except Exception as error:
            log.emit(CompileFail(FAMILY, run.unit, "", type(error).__name__, str(error)[:4000]))
            raise
        seconds = time.perf_counter() - start
        left = _graph(run.result) or given
        text = self._text(left)
        artifact = log.save(f"ir/{run.unit}.py", text) if self.log.artifacts and text else ""
        changed = run.allowed and (text != text_before or _size(left) != before)
        log.emit(PassRan(run.allowed, changed, before, _size(left), round(seconds, 6), artifact))

    def _bound(self, unit: str) -> EventLog:
        context = {"stage": FAMILY, "unit": unit}
        if direction := self.direction():
            context["direction"] = direction
        if compile_id := seams.compile_id():
            context["compile_id"] = compile_id
        return self.log.bind(**context)

    def _text(self, graph: fx.Graph | None) -> str:
        """Return the text of a graph, if anybody will read whether and how it changed."""
        if graph is None or self.log.folder is None:
            return ""
        return self._texts.write(graph)


def _graph(value: Any) -> fx.Graph | None:
    """Return the graph of an argument or a result of a pass; None if it has none."""
    value = getattr(value, "graph_module", value)
    value = value.graph if isinstance(value, fx.GraphModule) else value
    return value if isinstance(value, fx.Graph) else None


def _size(graph: fx.Graph | None) -> int:
    return 0 if graph is None else len(graph.nodes)
