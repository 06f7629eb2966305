"""Inline the bodies of checkpoints, branches and loops into the graph, each of them once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.surgery import (
    TooLarge,
    editable,
    finish,
    name_of,
    node_values,
    substitute,
)
from tcdebug.minifier.reduction.trial import can_run


@dataclass(frozen=True)
class _Body:
    """A nested graph: its operands, and how the result of its call follows from its own."""

    module: fx.Node
    operands: Sequence[Any]
    result: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True)
class InlineSubgraphs:
    """Inline any subset of the calls that run a nested graph."""

    name: str = "inline_subgraphs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the calls of operators that take a graph."""
        return [n.name for n in case.calls if name_of(n) in BODIES]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph with these bodies inlined. For a cond, that is the branch taken."""
        graph, named = editable(case)
        for node in case.calls:
            if node.name not in edits:
                continue
            call = named[node.name]
            with graph.inserting_before(call):
                body = BODIES[name_of(node)](case, call)
                if body is None:
                    return None
                substitute(call, body.result(_copied(case, graph, body)))
            graph.erase_node(call)
        candidate = finish(case, graph)
        return candidate if candidate is not None and can_run(candidate, case) else None


def _copied(case: Case, graph: fx.Graph, body: _Body) -> Any:
    """Copy the nodes of the body into the graph, and return what it returns."""
    path = str(body.module.target)
    inner: fx.Graph = case.attributes()[path].graph
    placeholders = [n for n in inner.nodes if n.op == "placeholder"]
    before = set(graph.nodes)
    result = graph.graph_copy(inner, dict(zip(placeholders, body.operands, strict=True)))
    for node in graph.nodes:
        if node not in before and node.op in ("get_attr", "call_module"):
            node.target = f"{path}.{node.target}"
    return result


def _wrapped(case: Case, call: fx.Node) -> _Body:
    """Return the body of an operator that runs a graph argument on the arguments after it."""
    place = next(k for k, a in enumerate(call.args) if _is_attribute(a))
    operands = [a for a in call.args[place + 1 :] if not isinstance(a, str)]
    return _Body(_node(call.args[place]), operands)


def _branch(case: Case, call: fx.Node) -> _Body | None:
    """Return the branch of a cond that its predicate chose; None if the predicate is unknown."""
    chosen, when_true, when_false, operands = call.args[:4]
    if isinstance(chosen, fx.Node):
        known = {str(i.name): i.value for i in case.inputs}
        key = str(chosen.target) if chosen.op == "placeholder" else chosen.name
        try:
            known.update(node_values(case, {chosen.name}))
        except TooLarge:
            return None
        if key not in known:
            return None
        chosen = bool(known[key])
    return _Body(_node(when_true if chosen else when_false), _list(operands))


def _iteration(case: Case, call: fx.Node) -> _Body:
    """Return the body of a while_loop."""
    return _Body(_node(call.args[1]), _list(call.args[2]) + _list(call.args[3]))


def _step(case: Case, call: fx.Node) -> _Body:
    """Return the body of a scan, applied to the first element only."""
    carried, scanned, others = map(_list, call.args[1:4])
    graph = call.graph
    first = [graph.call_function(operator.getitem, (x, 0)) for x in scanned]

    def result(returned: Sequence[Any]) -> tuple[Any, ...]:
        stacked = [graph.call_method("unsqueeze", (y, 0)) for y in returned[len(carried) :]]
        return (*returned[: len(carried)], *stacked)

    return _Body(_node(call.args[0]), carried + first + others, result)


def _forward(case: Case, call: fx.Node) -> _Body:
    """Return the forward of an autograd.Function, without the values saved for backward."""
    return _Body(_node(call.args[0]), call.args[2:], lambda returned: returned[0])


def _is_attribute(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.op == "get_attr"


def _node(value: Any) -> fx.Node:
    assert isinstance(value, fx.Node)
    return value


def _list(value: Any) -> list[Any]:
    return list(value)


BODIES: dict[str, Callable[[Case, fx.Node], _Body | None]] = {
    "tag_activation_checkpoint": _wrapped,
    "wrap": _wrapped,
    "wrap_activation_checkpoint": _wrapped,
    "wrap_with_autocast": _wrapped,
    "wrap_with_set_grad_enabled": _wrapped,
    "invoke_subgraph": _wrapped,
    "cond": _branch,
    "while_loop": _iteration,
    "scan": _step,
    "autograd_function_apply": _forward,
}
"""Operators by name, and the body of each that is inlined."""
