"""Runs one stage of a compile: times it, logs it, saves its IR, and reports where it failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import fx

from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CompileFail, PassRan, StageEnd, StageStart
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.stages.graph_text import GraphText

Text = Callable[[], str]


@dataclass
class RunningStage:
    """What a stage reports about itself. `text` prints its result, for a file with `suffix`."""

    nodes_before: int
    nodes_after: int = -1
    text: Text | None = None
    suffix: str = "py"


@dataclass
class Stages:
    """The stages of one graph: forward, backward or inference of one compile."""

    log: EventLog
    gate: Gate
    name: str
    """The name of the graph in file names, such as 0_0.forward."""
    _number: int = 0
    _last: dict[str, str] = field(default_factory=dict)
    _graph_text: GraphText = field(default_factory=GraphText)

    @contextmanager
    def stage(
        self, name: str, nodes: int, *, foreign: bool = False, before: str = ""
    ) -> Iterator[RunningStage]:
        """Run the block as a stage over a graph of `nodes` nodes.

        An exception becomes a CompileError. A `foreign` stage runs torch's code and keeps its
        exceptions: torch restarts its capture by raising, and its own messages are clearer.
        """
        log = self.log.bind(stage=name)
        step = RunningStage(nodes)
        log.emit(StageStart(nodes, before))
        start = time.perf_counter()
        try:
            yield step
        except CompileError as error:
            _report(log, error, error.__cause__ or error)
            raise
        except Exception as error:
            wrapped = CompileError(name, _message(error))
            _report(log, wrapped, error)
            if foreign:
                raise
            raise wrapped from error
        self._number += 1
        seconds = time.perf_counter() - start
        artifact, changed = self._keep(name, step)
        after = step.nodes_after if step.nodes_after >= 0 else nodes
        log.emit(StageEnd(nodes, after, changed, round(seconds, 6), artifact))

    def _keep(self, name: str, step: RunningStage) -> tuple[str, bool]:
        """Save the IR that a stage made. Returns the path, and whether the IR changed."""
        if step.text is None or not self.log.artifacts:
            return "", step.nodes_after != step.nodes_before
        text = step.text()
        if self._last.get(step.suffix) == text:
            return "", False
        self._last[step.suffix] = text
        return self.log.save(f"ir/{self.name}.{self._number:02}-{name}.{step.suffix}", text), True

    def run_passes(
        self, stage: str, module: fx.GraphModule, passes: Mapping[str, Callable[[fx.Graph], bool]]
    ) -> None:
        """Run graph passes under the gate. Each is linted, timed and logged."""
        with self.stage(stage, len(module.graph.nodes), before=self._before(module)) as step:
            text = self._last.get(RunningStage.suffix, "")
            for unit, function in passes.items():
                text = self._run_pass(stage, unit, function, module) or text
            module.recompile()
            step.nodes_after = len(module.graph.nodes)
            step.text = lambda: text

    def _before(self, module: fx.GraphModule) -> str:
        """Save a graph as it is before the passes. Returns the path."""
        if not self.log.artifacts:
            return ""
        text = self._graph_text.write(module)
        self._last[RunningStage.suffix] = text
        return self.log.save(f"ir/{self.name}.{self._number:02}-before.{RunningStage.suffix}", text)

    def _run_pass(
        self,
        stage: str,
        unit: str,
        function: Callable[[fx.Graph], bool],
        module: fx.GraphModule,
    ) -> str:
        """Run one pass. Returns the graph after it as text; empty if unchanged or not kept.

        Printing a graph takes longer than most passes, so it is done only after a change.
        """
        log = self.log.bind(stage=stage)
        before = len(module.graph.nodes)
        start = time.perf_counter()
        allowed = self.gate.allows(unit, unit)
        changed = False
        if allowed:
            try:
                changed = function(module.graph)
                module.graph.lint()
            except Exception as error:
                raise CompileError(stage, _message(error), unit=unit) from error
        seconds = time.perf_counter() - start
        text = artifact = ""
        if changed and self.log.artifacts:
            text = self._graph_text.write(module)
            artifact = log.save(f"ir/{self.name}.{self._number:02}-{unit}.py", text)
        after = len(module.graph.nodes)
        log.emit(PassRan(allowed, changed, before, after, round(seconds, 6), artifact), unit=unit)
        return text


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _report(log: EventLog, error: CompileError, cause: BaseException) -> None:
    if error.reported:
        return
    error.reported = True
    log.emit(
        CompileFail(error.stage, error.unit, error.node, type(cause).__name__, str(cause)[:4000])
    )
