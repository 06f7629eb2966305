"""The compiler stopped after a stage. The interpreter of the loop IR runs the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from tcdebug.compiler import decompose, partition, seams
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.configuration.overrides import Overrides
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir import interpreter
from tcdebug.compiler.ir.graph import Extern, Graph
from tcdebug.compiler.ir.verifier import verify
from tcdebug.compiler.lower.stage import lower_graph
from tcdebug.compiler.pipeline import ATEN
from tcdebug.compiler.pipeline import Compile as PipelineCompile
from tcdebug.compiler.schedule.in_place import in_place
from tcdebug.compiler.schedule.inlining.inline import inline_producers
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.schedule.stage import schedule_graph
from tcdebug.compiler.schedule.verifier import verify_schedule

INTERPRETED = ("lowered", "inlined", "scheduled")
"""The stages whose loop IR can be interpreted."""


@dataclass
class Captured:
    """The results of the stages for the graphs of one function, in order."""

    aten: list[fx.GraphModule] = field(default_factory=list)
    lowered: list[Graph] = field(default_factory=list)
    inlined: list[Graph] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    interpreted: str = "scheduled"
    """The stage whose loop IR the next call interprets; "nothing" to run the ATen graph."""


def scheduled_graph(schedule: Schedule) -> Graph:
    """The nodes of a schedule as a graph, in the order in which they run."""
    nodes = []
    for step in schedule.steps:
        nodes += [step] if isinstance(step, Extern) else list(step.nodes)
    return replace(schedule.graph, nodes=tuple(nodes))


def recording_backend(captured: Captured, toggles: Toggles | None = None) -> Callable[..., Any]:
    """A backend that keeps what each stage up to the schedule has made.

    Each call interprets the loop IR of `captured.interpreted`. If that is "aten" at first, the
    compile ends before lower.
    """

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        gate = Gate(toggles or Toggles())
        captured.gates.append(gate)

        def compiler(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            return seams.boxed(_scheduled(graph, gate, captured))

        return seams.aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            inference_compiler=compiler,
            decompositions=decompose.gated(gate, {}),
            partition_fn=partition.partitioner(gate),
            keep_inference_input_mutations=True,
        )(module, inputs)

    return backend


def _scheduled(
    module: fx.GraphModule, gate: Gate, captured: Captured
) -> Callable[[list[Any]], Sequence[Any]]:
    captured.aten.append(module)
    if captured.interpreted == "aten":
        return lambda args: fx.Interpreter(module).run(*_emptied(args))
    lowered = lower_graph(passed(module), gate).graph
    verify(lowered)
    captured.lowered.append(lowered)
    inlined = inline_producers(lowered, gate)
    verify(inlined)
    captured.inlined.append(inlined)
    schedule = in_place(schedule_graph(inlined, gate), gate)
    verify_schedule(schedule)
    captured.schedules.append(schedule)
    if captured.interpreted == "nothing":
        return lambda args: fx.Interpreter(module).run(*_emptied(args))
    graphs = {"lowered": lowered, "inlined": inlined, "scheduled": scheduled_graph(schedule)}

    def interpret(args: list[Any]) -> Sequence[Any]:
        # Without the mode in which AOTAutograd checks what each operator of a first call aliases.
        with _disable_current_modes():
            return interpreter.run(graphs[captured.interpreted], _emptied(args))

    return interpret


def passed(module: fx.GraphModule) -> fx.GraphModule:
    """The graph after all passes on ATen. It is changed in place."""
    for function in ATEN.values():
        function(module.graph)
        module.graph.lint()
    return module


def _emptied(args: list[Any]) -> list[Any]:
    taken = list(args)
    args.clear()
    return taken


def at_stage(
    stage: str,
    function: Callable[..., Any],
    toggles: Toggles | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """The function compiled up to a stage, with the rest interpreted."""
    backend = recording_backend(Captured(interpreted=stage), toggles)
    return torch.compile(function, backend=backend, **options)


def capture(
    function: Callable[..., Any],
    *inputs: Any,
    toggles: Toggles | None = None,
    interpreted: str = "scheduled",
    **options: Any,
) -> Captured:
    """The results of the stages for a function on given inputs."""
    captured = Captured(interpreted=interpreted)
    backend = recording_backend(captured, toggles)
    torch.compile(function, backend=backend, **options)(*inputs)
    return captured


def compile_with(gate: Gate, **options: Any) -> PipelineCompile:
    """The shared state of a compile, with a gate that the test can inspect."""
    return PipelineCompile(Options(log=False, **options), EventLog(None), gate, "0/0", Overrides())
