"""Compares whole captured graphs with eager, to find faults that no step shows.

Each call runs again on copies of its inputs, forward and backward, and its results are judged as
`tcdebug bisect` judges a graph. If they are wrong although no step is, AOTAutograd is compared
stage by stage. If that explains nothing either, the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, clone_values, from_captured, size_at_capture
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.autograd_stages import find_autograd_stage
from tcdebug.minifier.judging.compare import Referee
from tcdebug.minifier.judging.replay import compare, run
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.values.findings import BITWISE, WrongStep
from tcdebug.minifier.values.judgement import digest
from tcdebug.minifier.values.observation import Observation

STEPWISE = (EMBEDDED, INDUCTOR)
"""Backends whose kernels are observed."""


@dataclass(frozen=True)
class _WrongCall:
    """A call whose results are wrong."""

    graph: int
    call: int
    backend: str
    case: Case
    outcome: Outcome


@dataclass
class GraphChecks:
    """Checks the calls of the graphs that Dynamo captured."""

    observation: Observation
    graphs: int = 0
    suspects: list[_WrongCall] = field(default_factory=list)

    def wrap(self, backend: Any) -> Any:
        """Return the backend with its graphs checked."""
        if isinstance(backend, _CheckedBackend):
            return backend
        return _CheckedBackend(self, backend, describe(backend, "").name)

    def explain(self) -> None:
        """Look for the stage of AOTAutograd that explains wrong results."""
        observation = self.observation
        if observation.found is not None:
            return
        for suspect in self.suspects:
            reason = suspect.outcome.message
            if suspect.backend not in STEPWISE:
                observation.found = self._finding("graph", suspect.backend, suspect, reason, [])
                return
            with torch.random.fork_rng():
                try:
                    stage = find_autograd_stage(suspect.case, f"<graph {suspect.graph}>")
                except Exception as problem:
                    observation.notes.append(f"AOTAutograd was not compared: {problem}")
                    stage = None
            if stage is not None:
                lines = list(stage.lines)
                observation.found = self._finding(
                    "autograd", stage.stage, suspect, stage.what, lines
                )
                return
            observation.unexplained.append(
                f"graph {suspect.graph}, call {suspect.call}, {suspect.outcome.phase}: {reason}"
            )

    @staticmethod
    def _finding(
        kind: str, name: str, suspect: _WrongCall, reason: str, nodes: list[str]
    ) -> WrongStep:
        phase = suspect.outcome.phase
        return WrongStep(kind, name, suspect.graph, phase, suspect.call, 0, reason, nodes=nodes)


@dataclass(eq=False)
class _CheckedBackend:
    """A backend whose graphs are checked."""

    checks: GraphChecks
    original: Any
    name: str

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        ordinal = self.checks.graphs
        self.checks.graphs += 1
        case = from_captured(module, [size_at_capture(i) for i in inputs])
        compile_graph = torch._dynamo.lookup_backend(self.original)
        return _CheckedGraph(self, ordinal, module, case, compile_graph(module, list(inputs)))


@dataclass(eq=False)
class _CheckedGraph:
    """A compiled graph whose first calls are checked."""

    backend: _CheckedBackend
    ordinal: int
    module: fx.GraphModule
    case: Case
    compiled: Callable[..., Any]
    calls: int = 0
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(str(n.target) for n in self.module.graph.find_nodes(op="placeholder"))

    def __call__(self, *values: Any) -> Any:
        observation = self.backend.checks.observation
        active = not observation.paused and observation.found is None
        self.calls += 1
        if not active or self.calls > observation.most_calls:
            return self.compiled(*values)
        copies = clone_values(values)
        results = self.compiled(*values)
        observation.paused = True
        try:
            with torch.random.fork_rng():
                self._check(copies)
        finally:
            observation.paused = False
        return results

    def _check(self, values: Sequence[Any]) -> None:
        """Run the graph again on copies, and keep the call if its results are wrong."""
        observation = self.backend.checks.observation
        given = dict(zip(self.names, values, strict=True))
        now = {i.name: replace(i, value=size_at_capture(given[i.name])) for i in self.case.inputs}
        case = self.case.with_inputs(now)

        def compiled(*copies: Any) -> Any:
            named = zip((i.name for i in case.inputs), copies, strict=True)
            arguments = {**given, **dict(named)}
            return self.compiled(*(arguments[name] for name in self.names))

        try:
            outcome = self._outcome(case, compiled)
        except Exception as problem:  # what eager or a copy of the call raises
            reason = f"{type(problem).__name__}: {problem}"
            observation.notes.append(f"graph {self.ordinal} was not compared as a whole: {reason}")
            return
        if outcome.failed:
            suspect = _WrongCall(self.ordinal, self.calls, self.backend.name, case, outcome)
            self.backend.checks.suspects.append(suspect)

    def _outcome(self, case: Case, compiled: Callable[..., Any]) -> Outcome:
        observation = self.backend.checks.observation
        stepwise = self.backend.name in STEPWISE
        bits = observation.twice or observation.oracle == BITWISE
        if bits and stepwise:
            return Outcome(Kind.OK)
        module = load(case, f"<graph {self.ordinal}>")
        first = run(compiled if observation.twice else module, case)
        second = run(compiled, case)
        if not bits:
            return compare(case, module, first, second, Referee(observation.oracle))
        pairs = zip(first.tensors(), second.tensors(), strict=False)
        for place, (one, other) in enumerate(pairs):
            if digest(one) != digest(other):
                message = f"result {place} differs in its bits"
                return Outcome(Kind.WRONG, "results", "results | wrong bits", message)
        return Outcome(Kind.OK)
