"""Finds the first stage of AOTAutograd whose values differ from eager, if no unit is at fault.

The case is compiled with AOTAutograd alone. Its graphs run in plain torch. Their values are
compared with those of the captured graph in eager and in float64, by node and by result:

    autograd.trace      the graph that AOTAutograd traced
    autograd.partition  the graphs from the partition: forward, saved tensors, backward
    autograd.runtime    the code around these graphs: inputs, aliases, gradients

Each traced node records the captured node that it comes from. A wrong trace therefore leads to the
first captured node for which the trace has no right value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext

from tcdebug.minifier.cases.autograd_stage import StageFound
from tcdebug.minifier.cases.case import Case, clone_values, copy_module, flatten
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.compare import Difference
from tcdebug.minifier.judging.reference.eager_values import (
    EagerValues,
    Values,
    computed,
    differs,
    eager_values,
)
from tcdebug.minifier.judging.replay import Results, compare, fresh_capture, run

CAPTURE = "capture"
TRACE = "autograd.trace"
PARTITION = "autograd.partition"
RUNTIME = "autograd.runtime"
MOST_NODES = 8
"""The limit on shown trace nodes per captured node."""

Compiled = Callable[[list[Any]], Any]


def find_autograd_stage(case: Case, filename: str) -> StageFound | None:
    """Return the first stage whose values differ; None if none does.

    Also returns None for a graph that has a backward and draws random numbers. Raises what the case
    raises.
    """
    eager = run(load(case, filename), case)
    observer = _Observer()
    module = load(case, filename)
    with fresh_capture():
        actual = run(torch.compile(module, backend=observer.backend), case, mark=True)
    if observer.joint is not None and _draws(observer.joint):
        return None  # the joint graph cannot be rerun with the same random numbers
    return observer.found or _around(case, load(case, filename), eager, actual, observer.joint)


def _draws(module: fx.GraphModule) -> bool:
    """Return whether a graph draws random numbers."""
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(node.target, "tags", ()) for node in module.graph.nodes)


def _around(
    case: Case, module: torch.nn.Module, eager: Results, actual: Results, joint: Any
) -> StageFound | None:
    """Return the runtime stage if the results are wrong, and say if there is no joint graph."""
    outcome = compare(case, module, eager, actual)
    if outcome.kind is Kind.OK:
        return None
    missing = outcome.direction == "backward" and joint is None
    text = f"{outcome.message}; AOTAutograd traced no backward" if missing else outcome.message
    return StageFound(RUNTIME, PARTITION, text)


@dataclass
class _Observer:
    """A backend that runs AOTAutograd alone and compares the values of its graphs."""

    found: StageFound | None = None
    captured: fx.GraphModule | None = None
    joint: fx.GraphModule | None = None
    forward_outputs: int = 0
    """The number of outputs of the joint graph that belong to forward."""
    updated: Sequence[int] = ()
    """The arguments whose new values are the first outputs of forward."""
    results: slice = field(default_factory=lambda: slice(None))
    """The outputs of forward that are results of the captured graph."""
    expected: EagerValues | None = None
    primals: list[Any] = field(default_factory=list)

    def backend(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile the captured graph."""
        self.captured = copy_module(graph)
        compiled = aot_autograd(
            fw_compiler=self._forward,
            bw_compiler=self._backward,
            inference_compiler=self._forward,
            partition_fn=self._partition,
            keep_inference_input_mutations=True,
        )(graph, inputs)

        def call(*args: Any) -> Any:
            assert self.captured is not None
            self.expected = eager_values(self.captured, args)
            return compiled(*args)

        return call

    def _partition(self, joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        self.joint = copy_module(joint)
        self.forward_outputs = kwargs["num_fwd_outputs"]
        return min_cut_rematerialization_partition(joint, inputs, **kwargs)

    def _forward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            self.updated = context.fw_metadata.mutated_inp_runtime_indices
            updated = len(self.updated)
            self.results = slice(updated, updated + context.fw_metadata.num_outputs)

        def forward(args: list[Any]) -> Any:
            self.primals = clone_values(args)
            values, outputs = computed(graph, args)
            if self.found is None and self.expected is not None:
                wrong = self._wrong(args, outputs, self.expected)
                self.found = (
                    self._of_forward(graph, values, wrong, self.expected) if wrong else None
                )
            return outputs

        return boxed(forward)

    def _wrong(
        self, arguments: Sequence[Any], outputs: Sequence[Any], expected: EagerValues
    ) -> Difference | None:
        """Return the first wrong result of a graph for forward, or else its first wrong update."""
        after = list(arguments)
        for place, value in zip(self.updated, outputs, strict=False):
            after[place] = value
        return expected.first_wrong(outputs[self.results]) or expected.first_wrong_update(after)

    def _of_forward(
        self, graph: fx.GraphModule, values: Values, wrong: Difference, expected: EagerValues
    ) -> StageFound:
        if self.joint is not None:
            joint = _forward_part(self.joint, self.forward_outputs)
            arguments = clone_values(self.primals)
            values, traced = computed(joint, arguments)
            graph = self.joint
            if self._wrong(arguments, traced, expected) is None:
                return StageFound(PARTITION, TRACE, f"{wrong.where}: {wrong.detail}")
        assert self.captured is not None
        return _of_trace(self.captured, graph, values, expected, wrong)

    def _backward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        def backward(args: list[Any]) -> Any:
            given = clone_values(args)
            _, outputs = computed(graph, args)
            if self.found is None and self.joint is not None and self.expected is not None:
                self.found = self._of_backward(self.joint, graph, given, outputs, self.expected)
            return outputs

        return boxed(backward)

    def _of_backward(
        self,
        joint: fx.GraphModule,
        graph: fx.GraphModule,
        given: Sequence[Any],
        outputs: Sequence[Any],
        expected: EagerValues,
    ) -> StageFound | None:
        tangents = len(joint.graph.find_nodes(op="placeholder")) - len(self.primals)
        values, traced = computed(
            joint, [*clone_values(self.primals), *given[len(given) - tangents :]]
        )
        gradients = traced[self.forward_outputs :]
        for place, (right, wrong) in enumerate(zip(gradients, outputs, strict=True)):
            if found := differs(right, wrong, f"gradient {place}"):
                text = f"{found.where}: {found.detail}{_wrongly_saved(graph, given, values)}"
                return StageFound(PARTITION, TRACE, text)
        if wrong_gradient := expected.first_wrong_gradient(gradients):
            text = f"{wrong_gradient.where}: {wrong_gradient.detail}"
            return StageFound(TRACE, CAPTURE, f"{text}, in backward")
        return None


def _forward_part(joint: fx.GraphModule, outputs: int) -> fx.GraphModule:
    """Return the joint graph reduced to the outputs of forward, without tangents."""
    graph, _ = copy_graph(joint.graph)
    output = graph.output_node()
    flat = flatten(output.args[0])
    output.args = (tuple(flat[:outputs]),)
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="placeholder"):
        if "tangents" in node.name and not node.users:
            graph.erase_node(node)
    return fx.GraphModule(joint, graph)


def _of_trace(
    captured: fx.GraphModule,
    traced: fx.GraphModule,
    values: Values,
    expected: EagerValues,
    wrong: Difference,
) -> StageFound:
    """Return the trace stage, at the first captured node that has no right value in the trace."""
    made = _by_origin(traced)
    for node in captured.graph.nodes:
        right = expected.values.get(node.name)
        nodes = [n for n in made.get(node.name, ()) if n.name in values]
        if right is None or not nodes:
            continue
        exact = expected.exact_values.get(node.name)
        found = [differs(right, values[n.name], node.name, exact) for n in nodes]
        alike = [d for d in found if d is None or d.what not in ("dtype", "shape")]
        if alike and None not in alike:
            last = next(d for d in reversed(found) if d in alike)
            assert last is not None
            text = f"{node.name}: {last.detail}"
            return StageFound(TRACE, CAPTURE, text, _lines(node, nodes))
    return StageFound(TRACE, CAPTURE, f"{wrong.where}: {wrong.detail}")


def _lines(node: fx.Node, nodes: Sequence[fx.Node]) -> tuple[str, ...]:
    return (f"- {_call(node)}", *(f"+ {_call(n)}" for n in nodes[-MOST_NODES:]))


def _call(node: fx.Node) -> str:
    name = getattr(node.target, "__name__", node.target)
    arguments = [*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())]
    return f"{node.name} = {name}({', '.join(arguments)})"


def _by_origin(traced: fx.GraphModule) -> dict[str, list[fx.Node]]:
    """Return, by captured node, the nodes that the trace made from it, in order."""
    made: dict[str, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        for source in node.meta.get("from_node", ())[:1]:
            made.setdefault(source.name, []).append(node)
    return made


def _wrongly_saved(backward: fx.GraphModule, given: Sequence[Any], values: Values) -> str:
    """Describe the first tensor saved for backward that differs from the joint graph's value."""
    for node, value in zip(backward.graph.find_nodes(op="placeholder"), given, strict=False):
        right = values.get(node.name)
        if right is not None and (found := differs(right, value, node.name)):
            return f"; saved tensor {node.name}: {found.detail}"
    return ""


def boxed(function: Compiled) -> Compiled:
    """Mark a function as taking its arguments in a list."""
    function._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd's protocol
    return function
