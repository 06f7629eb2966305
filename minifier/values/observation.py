"""What a script's process has observed: counts, the first finding, and the report."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import ValueCompared
from tcdebug.minifier.cases.case import user_lines
from tcdebug.minifier.judging.compare import Difference
from tcdebug.minifier.values.findings import REPORT, ComparedValue, ValuesReport, WrongStep
from tcdebug.minifier.values.judgement import digest, errors, judged, roughness
from tcdebug.minifier.values.reference import Computed, ReferenceGraph, Unjudged

MOST_LINES = 12
"""The limit on nodes and on lines of the script that a finding lists."""


@dataclass(frozen=True)
class Step:
    """A statement of compiled code that computes."""

    number: int
    name: str
    kind: str
    source: str
    path: str = ""


@dataclass(frozen=True)
class ObservedPlace:
    """A call of a compiled graph."""

    graph: int
    direction: str
    call: int


@dataclass
class Observation:
    """The values that one process has compared.

    `stop` leaves the script once the first finding is written, and `broken` leaves
    it after an exception of tcdebug itself.
    """

    folder: Path
    log: EventLog
    script: str
    oracle: str
    twice: bool
    most_calls: int
    stop: Callable[[], None]
    broken: Callable[[], None]
    found: WrongStep | None = None
    rough: WrongStep | None = None
    """The first step in tolerance whose error is many times that of eager."""
    unexplained: list[str] = field(default_factory=list)
    captured: int = 0
    whole: int = 0
    graphs: int = 0
    calls: int = 0
    steps: int = 0
    values: int = 0
    unjudged: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    paused: bool = False

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Keep exceptions of tcdebug itself from looking like the script's."""
        try:
            yield
        except Exception:
            self.broken()
            raise

    def next_graph(self) -> int:
        """Count a compiled graph, and return its ordinal."""
        self.graphs += 1
        return self.graphs - 1

    def compare(
        self,
        place: ObservedPlace,
        step: Step,
        reference: ReferenceGraph,
        known: dict[str, Any],
        written: tuple[str, str, torch.Tensor],
        suspects: tuple[Step, ...] = (),
        updated: frozenset[str] = frozenset(),
        before: dict[str, Any] | None = None,
    ) -> bool:
        """Compare a value with its reference. Return whether it could be compared.

        `written` is the name, the FX node and the value. `suspects` are earlier steps whose results
        no node describes, and `updated` the inputs that the graph has updated. The value may also
        be right by what was known `before` the suspects. A wrong value ends the script.
        """
        buffer, node, value = written
        try:
            computed = reference.compute(node, known, updated)
            wrong = judged(value, computed, self.oracle, buffer)
            if wrong is not None and before is not None:
                earlier = reference.compute(node, before, updated)
                if judged(value, earlier, self.oracle, buffer) is None:
                    computed, wrong = earlier, None
        except Unjudged as reason:
            self.unjudged[str(reason)[:200]] += 1
            return False
        self.values += 1
        made = compared(buffer, node, value, computed, wrong)
        event = ValueCompared(
            place.graph, place.call, step.number, step.name, buffer, node,
            made.hash, made.eager_hash, _number(made.error),
            _number(made.eager_error), made.detail,
        )  # fmt: skip
        self.log.emit(event, direction=place.direction)
        if wrong is not None:
            self.find(self._finding(place, step, made, computed.nodes, suspects))
        elif self.rough is None and (detail := roughness(made.error, made.eager_error)):
            rough = msgspec.structs.replace(made, detail=detail)
            self.rough = self._finding(place, step, rough, computed.nodes, suspects)
        return True

    def _finding(
        self,
        place: ObservedPlace,
        step: Step,
        value: ComparedValue,
        nodes: tuple[fx.Node, ...],
        suspects: tuple[Step, ...],
    ) -> WrongStep:
        return WrongStep(
            step.kind, step.name, place.graph, place.direction, place.call, step.number,
            value.detail, value, step.source, step.path,
            [str(text) for n in nodes[-MOST_LINES:] if (text := n.format_node())],
            lines_of(nodes),
            [s.name for s in suspects],
        )  # fmt: skip

    def find(self, finding: WrongStep) -> None:
        """Keep the first finding, write the report and leave the script."""
        if self.found is None:
            self.found = finding
            self.write()
            self.stop()

    def write(self) -> None:
        """Write the report."""
        report = ValuesReport(
            self.script, self.oracle, self.twice, self.found, self.unexplained, self.captured,
            self.whole, self.graphs, self.calls, self.steps, self.values, dict(self.unjudged),
            self.notes, str(self.folder),
        )  # fmt: skip
        (self.folder / REPORT).write_bytes(msgspec.json.encode(report))


def compared(
    buffer: str, node: str, value: torch.Tensor, computed: Computed, wrong: Difference | None
) -> ComparedValue:
    """Describe a value that was compared."""
    error, eager_error = errors(value, computed)
    return ComparedValue(
        buffer, node, str(value.dtype).removeprefix("torch."), [int(n) for n in value.shape],
        digest(value), digest(computed.eager), error, eager_error,
        "" if wrong is None else wrong.detail,
    )  # fmt: skip


def _number(error: float | None) -> float:
    return -1.0 if error is None else error


def lines_of(nodes: tuple[fx.Node, ...]) -> list[str]:
    """Return the innermost lines of the script that nodes come from, the last ones first."""
    return user_lines(reversed(nodes))[:MOST_LINES]
