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
from tcdebug.minifier.judging.replay import Results, compare, run
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.stand_ins import StandIn
from tcdebug.minifier.values.findings import BITWISE, WrongStep
from tcdebug.minifier.values.judgement import digest, with_nonfinite_of
from tcdebug.minifier.values.observation import Observation
from tcdebug.minifier.values.reference import is_finite
from tcdebug.minifier.values.traced_rounding import (
    TraceVerdict,
    judge_trace,
    moved_by_rounding,
)

STEPWISE = (EMBEDDED, INDUCTOR)
"""Backends whose kernels are observed."""
ROUNDED = (
    "The graph that AOTAutograd traced gives the same results in plain torch, and those of eager "
    "in float64: its decompositions round more often than eager"
)
DECOMPOSED = (
    "No step explains it: the graph that AOTAutograd traced is wrong in plain torch too. tcdebug "
    "bisect names the decomposition"
)
SENSITIVE = (
    "No step is wrong, and eager differs from itself as much if what its operators round is moved "
    "by one unit: the results are sensitive to rounding"
)
ROUGH_STEP = (
    "Every step is in tolerance. The step that is named is the first whose error is many times "
    "that of eager"
)
UNEXPLAINED = "No step explains it: rounding errors may have accumulated"


@dataclass(frozen=True)
class _WrongCall:
    """A call whose results are wrong."""

    graph: int
    call: int
    backend: str
    case: Case
    outcome: Outcome
    results: Results | None
    rough: WrongStep | None
    """The first step of the call whose error is many times that of eager."""

    @property
    def described(self) -> str:
        """Where and how the results are wrong."""
        outcome = self.outcome
        return f"graph {self.graph}, call {self.call}, {outcome.phase}: {outcome.message}"


@dataclass
class GraphChecks:
    """Checks the calls of the graphs that Dynamo captured."""

    observation: Observation
    suspects: list[_WrongCall] = field(default_factory=list)

    def wrap(self, backend: Any) -> Any:
        """Return the backend with its graphs checked."""
        if isinstance(backend, _CheckedBackend):
            return backend
        return _CheckedBackend(self, backend, describe(backend, "").name)

    def checked(self, backend: str, module: fx.GraphModule, inputs: Sequence[Any]) -> CheckedGraph:
        """Return a graph to check, with its example inputs. Until it is compiled, it is eager."""
        case = from_captured(module, [size_at_capture(i) for i in inputs])
        ordinal = self.observation.captured
        self.observation.captured += 1
        return CheckedGraph(self, backend, ordinal, module, case, module)

    def explain(self) -> None:
        """Look for the stage of AOTAutograd that explains wrong results."""
        observation = self.observation
        if observation.found is not None:
            return
        for suspect in self.suspects:
            if suspect.backend in STEPWISE:
                stage = self._stage(suspect)
                if stage is not None:
                    observation.found = stage
                    return
            trace = self._trace(suspect)
            if trace is TraceVerdict.ROUNDS:
                observation.notes.append(f"{suspect.described}. {ROUNDED}")
            elif trace is TraceVerdict.UNKNOWN and self._jumps(suspect):
                observation.notes.append(f"{suspect.described}. {SENSITIVE}")
            elif trace is not TraceVerdict.WRONG and suspect.rough is not None:
                observation.notes.append(f"{suspect.described}. {ROUGH_STEP}")
                observation.found = suspect.rough
                return
            elif suspect.backend in STEPWISE:
                why = DECOMPOSED if trace is TraceVerdict.WRONG else UNEXPLAINED
                observation.unexplained.append(f"{suspect.described}. {why}")
            else:
                reason = suspect.outcome.message
                observation.found = self._finding("graph", suspect.backend, suspect, reason, [])
                return

    def _stage(self, suspect: _WrongCall) -> WrongStep | None:
        """Return the stage of AOTAutograd that explains wrong results."""
        with torch.random.fork_rng():
            try:
                stage = find_autograd_stage(suspect.case, f"<graph {suspect.graph}>")
            except Exception as problem:
                self.observation.notes.append(f"AOTAutograd was not compared: {problem}")
                return None
        if stage is None:
            return None
        return self._finding("autograd", stage.stage, suspect, stage.what, list(stage.lines))

    @property
    def _may_round(self) -> bool:
        observation = self.observation
        return observation.oracle == Referee.DEFAULT and not observation.twice

    def _jumps(self, suspect: _WrongCall) -> bool:
        """Return whether the results are as sensitive to rounding as they are wrong."""
        if suspect.results is None or suspect.backend not in STEPWISE or not self._may_round:
            return False
        with torch.random.fork_rng():
            return moved_by_rounding(suspect.case, suspect.results, f"<graph {suspect.graph}>")

    def _trace(self, suspect: _WrongCall) -> TraceVerdict:
        observation = self.observation
        if suspect.results is None or not self._may_round:
            return TraceVerdict.UNKNOWN
        with torch.random.fork_rng():
            try:
                return judge_trace(
                    suspect.backend, suspect.case, suspect.results, f"<graph {suspect.graph}>"
                )
            except Exception as problem:
                observation.notes.append(f"the traced graphs did not run: {problem}")
                return TraceVerdict.UNKNOWN

    @staticmethod
    def _finding(
        kind: str, name: str, suspect: _WrongCall, reason: str, nodes: list[str]
    ) -> WrongStep:
        phase = suspect.outcome.phase
        return WrongStep(kind, name, suspect.graph, phase, suspect.call, 0, reason, nodes=nodes)


@dataclass(eq=False, slots=True)
class _CheckedBackend(StandIn):
    """A backend whose graphs are checked."""

    checks: GraphChecks
    original: Any
    name: str

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = self.checks.checked(self.name, module, inputs)
        compile_graph = torch._dynamo.lookup_backend(self.original)
        graph.compiled = compile_graph(module, list(inputs))
        return graph


@dataclass(eq=False)
class CheckedGraph:
    """A compiled graph whose first calls are checked."""

    checks: GraphChecks
    backend: str
    ordinal: int
    module: fx.GraphModule
    case: Case
    compiled: Callable[..., Any]
    calls: int = 0
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(str(n.target) for n in self.module.graph.find_nodes(op="placeholder"))

    def __call__(self, *values: Any) -> Any:
        """Call the compiled graph, and check the first calls."""
        observation = self.checks.observation
        over = self.calls >= observation.most_calls
        if over or observation.paused or observation.found is not None:
            return self.compiled(*values)
        copies = clone_values(values)
        observation.rough = None
        results = self.compiled(*values)
        self.check(copies)
        return results

    def check(self, values: Sequence[Any]) -> None:
        """Make a call again, and keep it if its results are wrong."""
        observation = self.checks.observation
        self.calls += 1
        observation.paused = True
        try:
            with torch.random.fork_rng():
                self._check(values)
        finally:
            observation.paused = False

    def _check(self, values: Sequence[Any]) -> None:
        observation = self.checks.observation
        given = dict(zip(self.names, values, strict=True))
        now = {i.name: replace(i, value=size_at_capture(given[i.name])) for i in self.case.inputs}
        case = self.case.with_inputs(now)

        def compiled(*copies: Any) -> Any:
            named = zip((i.name for i in case.inputs), copies, strict=True)
            arguments = {**given, **dict(named)}
            return self.compiled(*(arguments[name] for name in self.names))

        try:
            outcome, results = self._outcome(case, compiled)
        except Exception as problem:  # what eager or a copy of the call raises
            reason = f"{type(problem).__name__}: {problem}"
            observation.notes.append(f"graph {self.ordinal} was not compared as a whole: {reason}")
            return
        if outcome.failed:
            self.checks.suspects.append(
                _WrongCall(
                    self.ordinal, self.calls, self.backend, case, outcome, results,
                    observation.rough,
                )
            )  # fmt: skip

    def _outcome(self, case: Case, compiled: Callable[..., Any]) -> tuple[Outcome, Results | None]:
        """Judge a call. Also return its results if they were computed for that."""
        observation = self.checks.observation
        stepwise = self.backend in STEPWISE
        bits = observation.twice or observation.oracle == BITWISE
        if bits and stepwise:
            return Outcome(Kind.OK), None
        observation.whole += 1
        module = load(case, f"<graph {self.ordinal}>")
        first = run(compiled if observation.twice else module, case)
        second = run(compiled, case)
        if not bits:
            outcome = compare(case, module, first, second, Referee(observation.oracle))
            if outcome.failed and not all(is_finite(i.value) for i in case.inputs):
                for one, other in zip(first.tensors(), second.tensors(), strict=False):
                    other.data.copy_(with_nonfinite_of(one.data, other.data))
                outcome = compare(case, module, first, second, Referee(observation.oracle))
            return outcome, second
        pairs = zip(first.tensors(), second.tensors(), strict=False)
        for place, (one, other) in enumerate(pairs):
            if digest(one) != digest(other):
                message = f"result {place} differs in its bits"
                return Outcome(Kind.WRONG, "results", "results | wrong bits", message), second
        return Outcome(Kind.OK), second
