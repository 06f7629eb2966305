"""Graph edits that reductions share: replacing nodes, removing dead code, choosing outputs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from tcdebug.minifier.cases.ambient import restored
from tcdebug.minifier.cases.case import Case, CaseInput, clone_values, flatten, tensors_of
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.operators.triton_launches import is_launch
from tcdebug.minifier.cases.placement import devices, evaluated
from tcdebug.minifier.judging.replay import SEED
from tcdebug.minifier.reduction.operators.regions import (
    changes_state,
    function_name,
    regions,
    repeated_calls,
)
from tcdebug.minifier.reduction.operators.transforms import (
    gradients_of_its_own,
    is_part,
    outputs_like,
    transforms,
)

WRITING = {
    "setitem", "delitem", "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior",
    "ipow", "irshift", "isub", "itruediv", "ixor",
}  # fmt: skip
"""Functions of `operator` that write to their first argument."""

UNWRITTEN = frozenset(
    (
        *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"),
        *("new_empty_strided", "resize_", "resize_as_", "set_", "Tensor"),
    )
)
"""Calls whose results, or parts of them, nobody may have written."""

MOST_BYTES = 4 << 30
"""The limit on intermediate values that are kept to cut a graph, in bytes."""

NodeValues = Callable[[Case, Collection[str]], Mapping[str, Any]]
"""Returns the results of calls in eager, by the names of their nodes."""
GIVEN = (torch.Tensor, int, float, bool, type(None))
"""The types of values that can replace a node."""
NO_VALUE = object()


class TooLarge(Exception):
    """The intermediate values of a graph exceed the limit."""


def editable(case: Case) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """Return a copy of a case's graph, and its nodes by their names in the original."""
    graph, copies = copy_graph(case.graph)
    return graph, {node.name: copy for node, copy in copies.items()}


def erase_with_marks(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a value, and the calls that only change the state of torch for it."""
    for user in list(node.users):
        if changes_state(user):
            graph.erase_node(user)
    graph.erase_node(node)


def remove_dead(graph: fx.Graph) -> None:
    """Remove unread nodes. Calls with side effects stay until an edit removes them."""
    remove_repeated(graph)
    for node in reversed(list(graph.nodes)):
        kept = node.op in ("placeholder", "output") or writes(node) or changes_state(node)
        if not node.users and not kept:
            graph.erase_node(node)
    _remove_empty_regions(graph)
    _remove_empty_transforms(graph)


def remove_repeated(graph: fx.Graph) -> None:
    """Remove calls that change no state because it is already as they would have it."""
    for node in repeated_calls(graph):
        graph.erase_node(node)


def _remove_empty_transforms(graph: fx.Graph) -> None:
    """Remove transforms whose values are not read after them, the innermost first."""
    for transform in transforms(graph) or []:
        inside = [transform.start]
        while inside[-1] is not transform.end:
            inside.append(inside[-1].next)
        if any(u not in inside for n in inside for u in n.users) or any(map(writes, inside)):
            continue
        for node in reversed(inside):
            graph.erase_node(node)
    if not any(t.kind == "vmap" for t in transforms(graph) or []):
        for node in list(graph.nodes):
            if function_name(node) == "lazy_load_decompositions":
                graph.erase_node(node)


def _remove_empty_regions(graph: fx.Graph) -> None:
    """Remove regions that compute nothing, the innermost first."""
    found = True
    while found:
        found = False
        for start, end in regions(graph):
            if start.next is end:
                graph.erase_node(end)
                graph.erase_node(start)
                found = True


def writes(node: fx.Node) -> bool:
    """Return whether a call writes to one of its arguments."""
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function":
        return False
    if is_launch(node):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = getattr(node.target, "__name__", "")
    if getattr(operator, name, None) is node.target:
        return name in WRITING
    in_place = name.endswith("_") and not name.startswith("_")
    return in_place or "out" in node.kwargs or node.kwargs.get("inplace") is True


def name_of(node: fx.Node) -> str:
    """Return the name of what a node calls: a function, method or operator."""
    if not node.op.startswith("call"):
        return ""
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))


def _is_uninformative(node: fx.Node) -> bool:
    """Return whether the result of a call says nothing about how it was compiled."""
    number = isinstance(node.meta.get("example_value"), int | float | torch.SymInt | torch.SymFloat)
    if number or changes_state(node) or is_launch(node):
        return True
    return node.target in (operator.setitem, operator.delitem)


def leaves(graph: fx.Graph) -> list[fx.Node]:
    """Return the unread values, which a truncated graph returns."""
    return [
        n
        for n in graph.nodes
        if n.op.startswith("call")
        and not _is_uninformative(n)
        and not is_part(n)
        and not [u for u in n.users if u.op != "output" and not _is_uninformative(u)]
    ]


def set_outputs(graph: fx.Graph, outputs: Sequence[fx.Node]) -> None:
    """Make a graph return these values."""
    graph.output_node().args = (tuple(outputs),)


def node_values(
    case: Case, wanted: Collection[str] | None = None, most_bytes: int = MOST_BYTES
) -> dict[str, Any]:
    """Return copies of the eager results of calls: the wanted ones, or all.

    What a kernel of the program writes to is returned as after the launch. Values inside a
    transform are left out because they mean nothing outside it. Raises TooLarge.
    """
    recorder = _ValueRecorder(case.module, wanted, most_bytes)
    torch.manual_seed(SEED)
    with restored(), gradients_of_its_own(case.graph), evaluated(case):
        recorder.run(*clone_values(case.values()))
    return recorder.values


class _ValueRecorder(fx.Interpreter):
    def __init__(
        self, module: fx.GraphModule, wanted: Collection[str] | None, most_bytes: int
    ) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}
        self._wanted = wanted
        self._bytes, self._most_bytes = 0, most_bytes

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op.startswith("call") and (self._wanted is None or n.name in self._wanted):
            self._record(n, result)
        if is_launch(n):
            for written in [a for a in n.all_input_nodes if a.name in self.values]:
                self._record(written, self.env[written])
        return result

    def _record(self, node: fx.Node, result: Any) -> None:
        if any(map(is_batched, tensors_of(result))):
            return
        self._bytes += sum(t.numel() * t.element_size() for t in tensors_of(result))
        if self._bytes > self._most_bytes:
            raise TooLarge
        with temporarily_clear_interpreter_stack():  # else copies belong to the transform
            self.values[node.name] = fx.node.map_aggregate(result, lambda v: clone_values([v])[0])


def is_batched(value: torch.Tensor) -> bool:
    """Return whether a tensor belongs to a level of vmap or grad."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def replace_by_inputs(
    case: Case, chosen: Sequence[str], values_of: NodeValues = node_values
) -> Case | None:
    """Replace nodes by their eager values: tensors become inputs, numbers become literals.

    All other nodes stay, and those that become unread are returned. Returns None if a value has
    another type or the values are too large.
    """
    gone = set(chosen)
    border = {n.name for n in case.calls if n.name in gone and {u.name for u in n.users} - gone}
    try:
        values = values_of(case, border)
    except TooLarge:
        return None
    graph, named = editable(case)
    outputs = {n for n in graph.output_node().all_input_nodes if n.op.startswith("call")}
    set_outputs(graph, [])
    inputs = list(case.inputs)
    for name in [n.name for n in case.calls if n.name in border]:
        if not all(isinstance(v, GIVEN) for v in flatten(values.get(name, NO_VALUE))):
            return None
        argument, made = _as_inputs(graph, named[name], values[name], _device(case))
        inputs += made
        substitute(named[name], argument)
    cut = {named[name] for name in gone}
    for node in reversed(list(graph.nodes)):
        if node in cut:
            graph.erase_node(node)
    ends = {*outputs, *leaves(graph)}
    set_outputs(graph, [n for n in graph.nodes if n in ends])
    return finish(case, graph, inputs)


def _device(case: Case) -> str:
    """Return the device of most inputs of a case that is kept on the CPU; empty for the CPU."""
    needed = Counter(spec.device for spec in case.inputs if spec.device)
    return next((name for name, _ in needed.most_common()), next(iter(devices(case)), ""))


def _as_inputs(
    graph: fx.Graph, node: fx.Node, value: Any, device: str
) -> tuple[Any, list[CaseInput]]:
    """Return the argument that replaces a node's value, and the inputs created for it.

    The inputs belong on the device that Dynamo recorded for the node, or else on `device`.
    """
    made: list[CaseInput] = []
    first = next(n for n in graph.nodes if n.op != "placeholder")
    count = len(flatten(value))
    known = flatten(node.meta.get("example_value"))
    examples = iter(known if len(known) == count else [None] * count)

    def given(part: Any) -> Any:
        example = next(examples)
        if not isinstance(part, torch.Tensor):
            return part
        name = f"{node.name}_value" + f"_{len(made)}" * (count > 1)
        with graph.inserting_before(first):
            placeholder = graph.placeholder(name)
        placeholder.meta = {"example_value": example}
        wanted = part.is_floating_point() and getattr(example, "requires_grad", False)
        own = getattr(example, "device", None) if device else None
        there = device if own is None else "" if own.type == "cpu" else str(own)
        made.append(CaseInput(name, part.detach().requires_grad_(wanted), device=there))
        return placeholder

    return fx.node.map_aggregate(value, given), made


def substitute(node: fx.Node, argument: Any) -> None:
    """Make the users of a node read an argument instead: a node, a number, or tuples of them."""
    for user in list(node.users):
        args = fx.node.map_arg(user.args, lambda n: argument if n is node else n)
        user.kwargs = fx.node.map_arg(user.kwargs, lambda n: argument if n is node else n)
        user.args = args
        if user.target is operator.getitem and isinstance(args[0], tuple | list):
            taken: Any = args[1]
            substitute(user, args[0][taken])
            user.graph.erase_node(user)


def finish(case: Case, graph: fx.Graph, inputs: Sequence[CaseInput] | None = None) -> Case | None:
    """Return a case with an edited graph; None if nothing is left to run."""
    remove_dead(graph)
    outputs = [n for n in graph.output_node().all_input_nodes if n.op.startswith("call")]
    if not outputs:
        outputs = leaves(graph)
    if not outputs:
        return None
    set_outputs(graph, outputs_like(case.graph, graph, list(dict.fromkeys(outputs))))
    remove_dead(graph)
    return case.with_graph(graph, inputs)
