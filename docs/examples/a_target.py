"""A target: a backend with two rewrites under the gate. One of them is wrong."""
# ruff: noqa: T201

import operator
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken, StageText
from tcdebug.compiler.gate.fingerprint import graph_id
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.investigation.stages import find_stage
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle


class Peephole:
    """x + x -> 2 * x, and x * x -> x ** 3, which is wrong."""

    name = "peephole"

    def __init__(self, run_dir: Path, artifacts: bool = False) -> None:
        self.run_dir = run_dir
        self.artifacts = artifacts

    @contextmanager
    def compiled(
        self, module: torch.nn.Module, toggles: Toggles, notify: Callable[[str], None]
    ) -> Iterator[Callable[..., Any]]:
        """The module compiled under toggles; calls `notify` when the compiled program runs."""
        # open it in the child: its events are found by its pid
        log = EventLog(self.run_dir, artifacts=self.artifacts)

        def record(decision: Decision, scope: str) -> None:
            event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
            log.emit(event, unit=decision.unit, site=decision.site)

        def keep(stage: str, graph: fx.GraphModule) -> None:
            if log.artifacts:
                log.emit(StageText(log.save(f"ir/{stage}.py", graph.code)), stage=stage)

        def backend(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
            notify("compile")
            keep("captured", graph)
            rewrite(graph, Gate(toggles, graph_id(graph.graph), record))
            keep("rewritten", graph)

            def call(*args: Any) -> Any:
                notify("forward")
                return graph(*args)

            return call

        yield torch.compile(module, backend=backend)

    def keeping(self, folder: Path) -> "Peephole":
        """The same target, with the graph before and after the rewrites in a folder."""
        return Peephole(folder, artifacts=True)

    @property
    def draws_as_eager(self) -> bool:
        """Whether it draws the random numbers of eager."""
        return True

    def added(self) -> dict[str, Any]:
        """No settings of inductor."""
        return {}

    def call(self) -> dict[str, Any]:
        """What a repro script passes to torch.compile."""
        return {"backend": self.name}


def rewrite(module: fx.GraphModule, gate: Gate) -> None:
    """Apply both rewrites, node by node; ask the gate last."""
    rules = {
        operator.add: ("peephole.add", lambda x: 2 * x),
        operator.mul: ("peephole.square", lambda x: x**3),
    }
    for node in list(module.graph.nodes):
        if node.target not in rules or node.args[0] is not node.args[1]:
            continue
        unit, made = rules[node.target]
        if gate.allows(unit, node.name):
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(made(fx.Proxy(node.args[0])).node)
            module.graph.erase_node(node)
    module.recompile()


def captured(function: Callable[..., Any], *values: Any) -> Case:
    """The case of a function that Dynamo captures as one graph."""
    cases: list[Case] = []

    def backend(module: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            cases.append(from_captured(module, given))
            return module(*given)

        return call

    torch.compile(function, backend=backend)(*values)
    return cases[0]


def f(x):
    y = x + x
    return (y * y) + (y + y)


torch.set_num_threads(1)  # candidates are forked: decisions/0001
folder = run_folder.create("peephole", Path(tempfile.mkdtemp()))
case, log = captured(f, torch.randn(5)), EventLog(folder, own=True)
oracle = graph_oracle(GraphSubject(Peephole(folder), log), Limits(), Budget())
failure = oracle.ask(case, Toggles(), "as it is")
print("outcome:", failure.kind, "|", failure.signature)
print("decisions:", [f"{d.unit} {d.subject}" for d in failure.decisions])
verdict = bisect(lambda t, why: oracle.ask(case, t, why), failure, Toggles(), log)
print("culprit:", verdict.units(), "confirmed:", verdict.confirmed, "reruns:", oracle.reruns)
found = find_stage(oracle, case, Toggles(), verdict.units(), folder / "stages")
print("stage:", found.stage, next(line for line in found.lines if line.startswith("+")))
