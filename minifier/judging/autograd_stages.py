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

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext

from tcdebug.minifier.cases.autograd_stage import StageFound
from tcdebug.minifier.cases.case import Case, clone_values, copy_module, flatten
from tcdebug.minifier.cases.lineage import Change, leaves
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.cases.subclasses.parts import cotangents
from tcdebug.minifier.judging.compare import Difference, difference
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64
from tcdebug.minifier.judging.replay import (
    Results,
    compare,
    fresh_capture,
    run,
)

CAPTURE = "capture"
TRACE = "autograd.trace"
PARTITION = "autograd.partition"
RUNTIME = "autograd.runtime"
MOST_NODES = 8
"""The limit on shown trace nodes per captured node."""

Values = Mapping[str, Any]
"""Node name -> the value that it computed."""
Sources = Sequence[tuple[int, torch.Tensor]]
"""The positions of arguments, and the leaves with which their gradients are computed."""
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
    results: slice = field(default_factory=lambda: slice(None))
    """The outputs of forward that are results of the captured graph."""
    expected: _Expected | None = None
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
            self.expected = _expected(self.captured, args)
            return compiled(*args)

        return call

    def _partition(self, joint: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        self.joint = copy_module(joint)
        self.forward_outputs = kwargs["num_fwd_outputs"]
        return min_cut_rematerialization_partition(joint, inputs, **kwargs)

    def _forward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            updated = context.fw_metadata.num_mutated_inp_runtime_indices
            self.results = slice(updated, updated + context.fw_metadata.num_outputs)

        def forward(args: list[Any]) -> Any:
            self.primals = clone_values(args)
            values, outputs = _computed(graph, args)
            if self.found is None and self.expected is not None:
                self.found = self._of_forward(graph, values, outputs, self.expected)
            return outputs

        return boxed(forward)

    def _of_forward(
        self, graph: fx.GraphModule, values: Values, outputs: Sequence[Any], expected: _Expected
    ) -> StageFound | None:
        wrong = expected.first_wrong(outputs[self.results])
        if wrong is None:
            return None
        if self.joint is not None:
            joint = _forward_part(self.joint, self.forward_outputs)
            values, traced = _computed(joint, [*clone_values(self.primals)])
            graph = self.joint
            if expected.first_wrong(traced[self.results]) is None:
                return StageFound(PARTITION, TRACE, f"{wrong.where}: {wrong.detail}")
        assert self.captured is not None
        return _of_trace(self.captured, graph, values, expected, wrong)

    def _backward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        def backward(args: list[Any]) -> Any:
            given = clone_values(args)
            _, outputs = _computed(graph, args)
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
        expected: _Expected,
    ) -> StageFound | None:
        tangents = len(joint.graph.find_nodes(op="placeholder")) - len(self.primals)
        values, traced = _computed(
            joint, [*clone_values(self.primals), *given[len(given) - tangents :]]
        )
        gradients = traced[self.forward_outputs :]
        for place, (right, wrong) in enumerate(zip(gradients, outputs, strict=True)):
            if found := _differs(right, wrong, f"gradient {place}"):
                text = f"{found.where}: {found.detail}{_wrongly_saved(graph, given, values)}"
                return StageFound(PARTITION, TRACE, text)
        if wrong_gradient := expected.first_wrong_gradient(gradients):
            text = f"{wrong_gradient.where}: {wrong_gradient.detail}"
            return StageFound(TRACE, CAPTURE, f"{text}, in backward")
        return None


@dataclass(frozen=True)
class _Expected:
    """What the captured graph computes in eager, and in float64 if it can."""

    values: Values
    outputs: Sequence[Any]
    arguments: int
    """The number of arguments of the captured graph."""
    gradients: Sequence[tuple[int, Any]]
    """The gradients of arguments that require one, with the argument's position."""
    exact_values: Values
    exact_outputs: Sequence[Any] | None
    exact_gradients: Sequence[tuple[int, Any]] = ()

    def first_wrong(self, outputs: Sequence[Any]) -> Difference | None:
        """Return the first wrong result."""
        exact = self.exact_outputs or [None] * len(self.outputs)
        for place, (e, a, x) in enumerate(zip(self.outputs, outputs, exact, strict=False)):
            if found := _differs(e, a, f"output {place}", x):
                return found
        return None

    def first_wrong_gradient(self, gradients: Sequence[Any]) -> Difference | None:
        """Return the first wrong gradient, if the traced graph has the same arguments."""
        if len(gradients) != self.arguments:
            return None
        exact = dict(self.exact_gradients)
        for place, right in self.gradients:
            where = f"gradient {place}"
            if found := _differs(right, gradients[place], where, exact.get(place)):
                return found
        return None


def _expected(captured: fx.GraphModule, args: Sequence[Any]) -> _Expected:
    """Run the captured graph on copies of its arguments, with the same random numbers."""
    with torch.random.fork_rng():
        copies = clone_values(args)
        sources = _sources(copies)
        values, outputs = _computed(captured, copies, detach=False)
        gradients = _gradients(sources, outputs) if torch.is_grad_enabled() else []
    exact: Values = {}
    exact_outputs: Sequence[Any] | None = None
    exact_gradients: Sequence[tuple[int, Any]] = ()
    with contextlib.suppress(Exception), torch.random.fork_rng():  # it may need its own dtypes
        sources, exact, found = in_float64(
            partial(_computed, captured, detach=False), lambda graph: _on_wide(graph, args)
        )
        exact_outputs = [_plain(o) for o in found]
        exact_gradients = _gradients(sources, found) if torch.is_grad_enabled() else ()
    plain = [_plain(o) for o in outputs]
    return _Expected(values, plain, len(args), gradients, exact, exact_outputs, exact_gradients)


def _on_wide(
    graph: Callable[[Sequence[Any]], tuple[Values, list[Any]]], args: Sequence[Any]
) -> tuple[Sources, Values, list[Any]]:
    """Return the sources of copies of arguments in float64, and what a graph computes from them."""
    wide = clone_values(args, _WIDER)
    sources = _sources(wide)
    return sources, *graph(wide)


def _wider(memory: torch.Tensor) -> torch.Tensor:
    return memory.to(torch.float64 if memory.is_floating_point() else memory.dtype, copy=True)


_WIDER: Change = _wider


def _sources(copies: Sequence[Any]) -> Sources:
    """Return the leaf that each argument is, or is a clone of, before a graph updates arguments.

    A leaf of several arguments is left out, because it has the sum of their gradients.
    """
    of_each = [leaves([copy]) for copy in copies]
    count = Counter(id(leaf) for found in of_each for leaf in found)
    return [
        (k, leaf)
        for k, (copy, found) in enumerate(zip(copies, of_each, strict=True))
        for leaf in found
        if count[id(leaf)] == 1 and (copy is leaf or _is_clone(copy, leaf))
    ]


def _is_clone(copy: torch.Tensor, leaf: torch.Tensor) -> bool:
    made = copy.grad_fn
    if made is None or made.name() != "CloneBackward0":
        return False
    return getattr(made.next_functions[0][0], "variable", None) is leaf


def _gradients(sources: Sources, outputs: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the gradients of arguments, for the cotangents of `replay.run`."""
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not roots or not sources:
        return []
    wanted = [leaf for _, leaf in sources]
    found = torch.autograd.grad(roots, wanted, cotangents(roots), allow_unused=True)
    return [(k, gradient) for (k, _), gradient in zip(sources, found, strict=True)]


class _NodeValues(fx.Interpreter):
    """Runs a graph and keeps a copy of what each node computes."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and record its value."""
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.values[n.name] = result.detach().clone()
        return result


def _computed(
    module: fx.GraphModule, args: Sequence[Any], *, detach: bool = True
) -> tuple[Values, list[Any]]:
    """Return the value of each node of a graph, and the graph's outputs."""
    recording = _NodeValues(module)
    with torch.no_grad() if detach else contextlib.nullcontext():
        outputs = recording.run(*args)
    return recording.values, flatten(outputs)


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
    expected: _Expected,
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
        found = [_differs(right, values[n.name], node.name, exact) for n in nodes]
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
        if right is not None and (found := _differs(right, value, node.name)):
            return f"; saved tensor {node.name}: {found.detail}"
    return ""


def _differs(right: Any, value: Any, where: str, exact: Any = None) -> Difference | None:
    """Return how two tensors differ; None for values that are not tensors."""
    if not isinstance(right, torch.Tensor) or not isinstance(value, torch.Tensor):
        return None
    return difference(right.detach(), value.detach(), exact, where)


def _plain(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def boxed(function: Compiled) -> Compiled:
    """Mark a function as taking its arguments in a list."""
    function._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd's protocol
    return function
