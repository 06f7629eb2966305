"""The compiler on one page.

    capture      Python frame -> FX graph                         TorchDynamo calls the backend
    pregrad      FX graph -> FX graph                             passes before autograd
    aot          FX graph -> joint ATen graph                     AOTAutograd, which calls
    decompose      composite ATen -> simpler ATen                   while it traces,
    partition      joint graph -> forward + backward                afterwards, and then compiles
                                                                    each part (`compile_part`)
    passes       ATen graph -> ATen graph
    lower        ATen graph -> loop IR
    inline       loop IR -> loop IR                               vertical fusion by substitution
    schedule     loop IR -> kernels and extern calls              fusion into loop nests, order
    products     schedule -> schedule                             templates, where measured faster
    codegen      kernels -> C++ or Triton, schedule -> Python wrapper
    runtime      source -> callable

Every stage is logged, and its result verified. Every optional step asks the gate.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx

from tcdebug.compiler import decompose, direct_calls, partition, seams
from tcdebug.compiler.bodies import with_bodies
from tcdebug.compiler.codegen.wrapper.graph_steps import graph_steps
from tcdebug.compiler.codegen.wrapper.provenance import origins
from tcdebug.compiler.codegen.wrapper.views import direct_views
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperWriter
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.configuration.overrides import GraphCompiler, Overrides
from tcdebug.compiler.devices import DEVICES
from tcdebug.compiler.devices.load import load
from tcdebug.compiler.devices.protocol import KernelSource
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import (
    CompileStart,
    DecisionTaken,
    GraphBreak,
    Recompile,
)
from tcdebug.compiler.gate.fingerprint import graph_id
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.gated import SUPERVISION
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.printer import print_graph
from tcdebug.compiler.ir.verifier import verify
from tcdebug.compiler.lower.stage import lower_graph, op_name
from tcdebug.compiler.lower.tables import VIEWS
from tcdebug.compiler.observation import OBSERVERS, CompiledGraph
from tcdebug.compiler.partition import donated_tensors, saved_tensors
from tcdebug.compiler.passes import PASSES
from tcdebug.compiler.passes.random_numbers import random_numbers
from tcdebug.compiler.pregrad import PREGRAD_PASSES
from tcdebug.compiler.registry import REGISTRY, read_through
from tcdebug.compiler.reports import report_end, report_kernels, report_remarks
from tcdebug.compiler.runtime.cuda.capturable import captured
from tcdebug.compiler.runtime.cuda.products import with_templates
from tcdebug.compiler.runtime.profiler_ranges import graph_range
from tcdebug.compiler.schedule.combo_kernels import with_combo_kernels
from tcdebug.compiler.schedule.in_place import in_place
from tcdebug.compiler.schedule.inlining.inline import inline_producers
from tcdebug.compiler.schedule.kernel import Kernel, Schedule
from tcdebug.compiler.schedule.printer import print_schedule
from tcdebug.compiler.schedule.stage import schedule_graph
from tcdebug.compiler.schedule.verifier import verify_schedule
from tcdebug.compiler.stages.gated_passes import GatedPasses
from tcdebug.compiler.stages.recovery import copied, recovering
from tcdebug.compiler.stages.stage import Stages

Compiled = Callable[[list[Any]], Sequence[Any]]

NO_OVERRIDES = Overrides()
PREGRAD = read_through(
    {f"pregrad.{function.__name__}": function for function in PREGRAD_PASSES},
    REGISTRY.pregrad_passes,
)
ATEN = read_through(
    {f"passes.{function.__name__}": function for function in PASSES}, REGISTRY.aten_passes
)

RANDOM = {f"passes.{random_numbers.__name__}": random_numbers}
"""Runs without `fallback_random` only: on the joint graph, then on each part of it."""


@dataclass(frozen=True)
class Compile:
    """The state that all stages of one compile share."""

    options: Options
    log: EventLog
    gate: Gate
    compile_id: str
    overrides: Overrides

    def under(self, toggles: Toggles) -> Compile:
        """Another attempt at this compile, with other toggles."""
        return replace(self, gate=self.gate.under(toggles))

    def donated(self, module: fx.GraphModule, direction: str, gate: Gate) -> frozenset[str]:
        """The inputs that a graph may write over: tensors that a forward of this compiler saved.

        With CUDA graphs, there are none: backward reads what it finds in forward's capture.
        """
        ours = self.overrides.compiler("forward") is None
        if direction != "backward" or self.options.cudagraphs or not ours:
            return frozenset()
        return donated_tensors.donated(module, gate)

    def body(self, module: fx.GraphModule, direction: str) -> Compiled:
        """Compile a body of control flow. A CUDA graph would overwrite its results."""
        uncaptured = replace(self.options, cudagraphs=False)
        return compile_aten(module, direction, replace(self, options=uncaptured))

    def stages(self, direction: str) -> Stages:
        """The stages of one graph of this compile. Its decisions and events name the direction."""
        name = f"{self.compile_id.replace('/', '_') or 'graph'}.{direction}"
        return Stages(self.log.bind(direction=direction), self.gate.scoped(direction), name)


def begin(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Options,
    log: EventLog,
    counts: dict[str, int] | None,
    overrides: Overrides = NO_OVERRIDES,
) -> Compile:
    """Set up a compile: its log, its gate, and the events that announce it."""
    compile_id, identity = seams.compile_id(), graph_id(module.graph)
    log = log.bind(compile_id=compile_id, graph_id=identity)

    def record(decision: Decision, scope: str) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=scope)

    gate = Gate(options.toggles, identity, record, {} if counts is None else counts)
    operators = Counter(op_name(n.target) for n in module.graph.nodes if n.op.startswith("call"))
    log.emit(CompileStart(len(module.graph.nodes), len(inputs), options.toggles.texts(), operators))
    _report_capture(module, log)
    return Compile(options, log, gate, compile_id, overrides)


def _report_capture(module: fx.GraphModule, log: EventLog) -> None:
    """Log why Dynamo captured this frame again, and why the graph ends before the frame does.

    torch's structured trace has both; nothing is logged while it is being recorded.
    """
    if seams.traced():
        return
    if reason := seams.recompile_reason():
        log.emit(Recompile(reason), stage="capture")
    if broken := seams.graph_break(module):
        reason, where = broken
        log.emit(GraphBreak(reason), stage="capture", user_loc=where)


def compile_captured(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    options: Options,
    log: EventLog,
    counts: dict[str, int] | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, with its backward if gradients are needed.

    Compiles that share `counts` number their decisions in one sequence; see `Gate`. `overrides`
    replace stages of the compiler. Raises CompileError if a stage fails.
    """
    this = begin(module, inputs, options, log, counts, overrides)
    if options.on_error != "fallback":
        return compile_supervised(module, inputs, this)
    return recovering(
        lambda toggles: compile_supervised(copied(module), inputs, this.under(toggles)),
        options.toggles,
        this.log,
    )


def compile_supervised(
    module: fx.GraphModule, inputs: Sequence[Any], this: Compile
) -> Callable[..., Any]:
    """Compile a graph. Gated passes that run meanwhile ask the gate of this compile."""
    with SUPERVISION.of_compile(GatedPasses(this.gate.scoped("capture"), this.log)):
        return compile_joint(module, inputs, this)


def compile_joint(
    module: fx.GraphModule, inputs: Sequence[Any], this: Compile
) -> Callable[..., Any]:
    """Run the stages up to the ATen graphs, and compile each ATen graph."""
    for device in {given.device.type for given in inputs if isinstance(given, Tensor)}:
        if device in DEVICES:
            DEVICES[device].prepare(this.options)
    stages = this.stages("capture")
    stages.run_passes("pregrad", module, PREGRAD)

    def compiler(direction: str) -> GraphCompiler:
        if (given := this.overrides.compiler(direction)) is not None:
            return lambda graph, examples: seams.as_boxed(given(graph, examples))
        if this.options.on_error != "fallback":
            return lambda graph, examples: compile_part(graph, examples, direction, this)
        return lambda graph, examples: recovering(
            lambda toggles: compile_part(copied(graph), examples, direction, this.under(toggles)),
            this.gate.toggles,
            this.log,
        )

    def prepare(joint: fx.GraphModule) -> None:
        saved_tensors.give_elements_memory(joint)
        if not this.options.fallback_random:
            this.stages("joint").run_passes("passes", joint, RANDOM)

    def direct(
        module: fx.GraphModule, made: Callable[..., Any], inference: seams.InferenceCompiler
    ) -> Callable[..., Any]:
        if any(map(this.overrides.compiler, ("forward", "backward", "inference"))):
            return made  # torch accepts more from a vendor's compilers
        return direct_calls.direct(module, made, inference, gate, this.log)

    gate = this.gate.scoped("joint")
    drawing = seams.keep_unused_draws() if this.options.fallback_random else nullcontext()
    with stages.stage("aot", len(module.graph.nodes), foreign=True), drawing:
        backend = seams.aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            direct=direct,
            decompositions=decompose.gated(gate, this.overrides.decompositions),
            partition_fn=this.overrides.partition_fn
            or partition.partitioner(gate, this.options.memory_budget, prepare),
            keep_inference_input_mutations=True,
        )
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


def compile_part(
    module: fx.GraphModule, examples: Sequence[Any], direction: str, this: Compile
) -> Compiled:
    """Compile one part of the partition, in which saved tensors may have different strides."""
    if direction == "backward":
        saved_tensors.take_strides(module, examples)
    elif direction == "forward" and this.overrides.bw_compiler is None:
        with saved_tensors.free_strides(module):
            return compile_aten(module, direction, this)
    return compile_aten(module, direction, this)


def compile_aten(module: fx.GraphModule, direction: str, this: Compile) -> Compiled:
    """Compile a functional ATen graph. The result takes its arguments in a list."""
    start = time.perf_counter()
    stages = this.stages(direction)
    gate = stages.gate
    drawn = {} if this.options.fallback_random else RANDOM
    observation = OBSERVERS.begin(module, direction)
    observed = observation is not None
    over = this.donated(module, direction, gate) if not observed else frozenset()
    stages.run_passes("passes", module, {**drawn, **ATEN})
    with stages.stage("lower", len(module.graph.nodes)) as step:
        lowered = lower_graph(module, gate)
        verify(lowered.graph)
        step.nodes_after = len(lowered.graph.nodes)
        step.text = lambda: print_graph(lowered.graph)
    if observation is None:
        lowered = with_bodies(lowered, module, direction, stages, this.body)
    with stages.stage("inline", len(lowered.graph.nodes)) as step:
        inlined = inline_producers(lowered.graph, gate)
        verify(inlined)
        step.nodes_after = len(inlined.nodes)
        step.text = lambda: print_graph(inlined)
    with stages.stage("schedule", len(inlined.nodes)) as step:
        schedule = schedule_graph(inlined, gate)
        if not this.options.templates:  # otherwise after `products`, which removes buffers
            schedule = _in_memory(schedule, gate, over, observed=observed)
        verify_schedule(schedule)
        step.nodes_after = len(schedule.steps)
        step.text = lambda: print_schedule(schedule)
    if this.options.templates:
        schedule = _with_products(schedule, module, stages, this.options, over, observed=observed)
    donated_tensors.report(module, schedule, direction)
    report_remarks(stages, schedule, gate)
    if observation is None:
        schedule = direct_views(schedule, VIEWS, direction, gate)
    with stages.stage("codegen", len(schedule.steps)) as step:
        sources = write_kernels(schedule, gate)
        calls = {name: call for s in sources.values() for name, call in s.calls.items()}
        if observation is not None:
            calls = {name: replace(call, joins=False) for name, call in calls.items()}
        wrapper = WrapperWriter(schedule, calls, gate, direction=direction).write()
        step.text = lambda: wrapper.text
        step.suffix = "wrapper.py"
    lines = origins(schedule, lowered.graph)
    paths = [report_kernels(stages, source, lines) for source in sources.values()]
    for called in graph_steps(schedule, calls, lines) if this.options.profile else ():
        stages.log.emit(called)
    if observation is not None:
        graph = CompiledGraph(module, direction, lowered.names, calls, "".join(paths[:1]), wrapper)
        wrapper = observation.wrapped(graph)
    with stages.stage("runtime", len(calls)):
        compiled = load(stages, sources, wrapper, module.forward, this.options)
        if observation is not None:
            compiled = observation.loaded(compiled)
        if this.options.cudagraphs:
            compiled = captured(compiled, schedule, stages, direction, this.options.dim_gears)
        if this.options.profile:
            compiled = graph_range(compiled, this.compile_id, direction, this.gate.graph_id)
    report_end(stages, lowered, schedule, calls, time.perf_counter() - start)
    return seams.boxed(compiled)


def _with_products(
    schedule: Schedule,
    module: fx.GraphModule,
    stages: Stages,
    options: Options,
    over: frozenset[str],
    *,
    observed: bool,
) -> Schedule:
    """Run the stage that replaces matrix products by templates where these are faster."""
    with stages.stage("products", len(schedule.steps)) as step:
        templated = with_templates(schedule, stages, options, seams.captured_sizes(module))
        result = _in_memory(templated, stages.gate, over, observed=observed)
        verify_schedule(result)
        step.nodes_after = len(result.steps)
        step.text = lambda: print_schedule(result)
    return result


def _in_memory(schedule: Schedule, gate: Gate, over: frozenset[str], *, observed: bool) -> Schedule:
    """Return the schedule with results over dead buffers, and then with combo kernels.

    `over` are inputs that may be written over. A tool that observes the values between kernels
    needs each kernel by itself.
    """
    schedule = in_place(schedule, gate, over)
    return schedule if observed else with_combo_kernels(schedule, gate)


def write_kernels(schedule: Schedule, gate: Gate) -> dict[str, KernelSource]:
    """Return the source of the kernels of a schedule for each type of device."""
    buffers = schedule.graph.buffers()
    kernels: dict[str, list[Kernel]] = {}
    for kernel in schedule.kernels():
        kernels.setdefault(kernel.device.type, []).append(kernel)
    return {device: DEVICES[device].write(some, buffers, gate) for device, some in kernels.items()}
