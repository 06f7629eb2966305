"""Levels of vmap, grad and jvp in a graph: which values belong to them, and how values leave them.

Dynamo emits a call at the start and at the end of a transform. Between them, values are wrapped and
unwrapped for its level. A value that outlives its level is an error, so every edit of a graph must
respect the levels.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.reduction.operators.regions import function_name

NESTING = re.compile(r"^_(vmap|grad|jvp)_(in|de)crement_nesting$")
WRAPS = ("_add_batch_dim", "_wrap_for_grad")
UNWRAPS = ("_remove_batch_dim", "_unwrap_for_grad")
PARTS = re.compile(
    r"_nesting$|_batch_dim$|_(un)?wrap_for_grad$|requires_grad|_(make|unpack)_dual$|_dual_level$"
    r"|fwd_grad_enabled$|hooks_(en|dis)able$|lazy_load"
)
"""Calls that belong to a transform and compute nothing themselves."""
DIFFERENTIATES = ("_grad_increment_nesting", "grad")
"""Calls before which, or in which, a graph records gradients of its own: those of torch.func, and
`torch.autograd.grad`."""


@dataclass(frozen=True)
class Transform:
    """A vmap, grad or jvp, its level, and the calls that start and end it."""

    kind: str
    level: int
    start: fx.Node
    end: fx.Node


def transforms(graph: fx.Graph) -> list[Transform] | None:
    """Return the transforms, inner ones before outer ones; None if they are not balanced."""
    found: list[Transform] = []
    open_: list[tuple[str, fx.Node]] = []
    for node in graph.nodes:
        if match := NESTING.match(function_name(node)):
            if match[2] == "in":
                open_.append((match[1], node))
            elif not open_ or open_[-1][0] != match[1]:
                return None
            else:
                kind, start = open_.pop()
                found.append(Transform(kind, len(open_) + 1, start, node))
    return None if open_ else found


def is_part(node: fx.Node) -> bool:
    """Return whether a call belongs to a transform itself."""
    return PARTS.search(function_name(node)) is not None


def gradients_of_its_own(graph: fx.Graph) -> AbstractContextManager[None]:
    """Return a context without gradients, except for a graph that takes some itself.

    `torch.func.grad` turns gradients on. A graph has a call for that only if they were off before.
    With a torch for GPUs there are none: the first backward starts threads, which forks would lose.
    """
    own = any(function_name(node) in DIFFERENTIATES for node in graph.nodes)
    return torch.enable_grad() if own and torch.version.cuda is None else torch.no_grad()


def levels(graph: fx.Graph) -> dict[fx.Node, frozenset[int]] | None:
    """Return the levels of each value of a graph; None if a value outlives its level."""
    if transforms(graph) is None:
        return None
    found: dict[fx.Node, frozenset[int]] = {}
    depth = 0
    for node in graph.nodes:
        read = [found[n] for n in node.all_input_nodes]
        own = frozenset[int]().union(*read)
        if any(level > depth for level in own):
            return None
        name = function_name(node)
        if match := NESTING.match(name):
            depth += 1 if match[2] == "in" else -1
        if name in WRAPS:
            own |= {_level(node)}
        elif name in UNWRAPS:
            own -= {_level(node)}
        found[node] = own
    return None if found[graph.output_node()] else found


def is_well_formed(graph: fx.Graph) -> bool:
    """Return whether every transform that starts also ends, and no value outlives its level."""
    return levels(graph) is not None


def is_balanced(graph: fx.Graph) -> bool:
    """Return whether every transform that starts also ends."""
    return transforms(graph) is not None


def _level(node: fx.Node) -> int:
    """Return the level for which a call wraps or unwraps a value."""
    place = 2 if function_name(node) == "_add_batch_dim" else 1
    level: Any = node.args[place]
    return int(level)


def outputs_like(original: fx.Graph, graph: fx.Graph, outputs: Sequence[fx.Node]) -> list[fx.Node]:
    """Return what an edited graph returns for these values: they leave their transforms.

    If values of the original outlive their level, as the results of `torch.func.vjp` do, that may
    be what fails, and the values are returned as they are.
    """
    if is_well_formed(original):
        return leave_transforms(graph, outputs)
    return list(outputs)


def _live_levels(graph: fx.Graph) -> dict[fx.Node, frozenset[int]]:
    """As `levels`, for a graph whose outputs have not left their transforms yet."""
    found: dict[fx.Node, frozenset[int]] = {}
    for node in graph.nodes:
        own = frozenset[int]().union(*(found[n] for n in node.all_input_nodes))
        name = function_name(node)
        if name in WRAPS:
            own |= {_level(node)}
        elif name in UNWRAPS:
            own -= {_level(node)}
        found[node] = own
    return found


def leave_transforms(graph: fx.Graph, outputs: Sequence[fx.Node]) -> list[fx.Node]:
    """Add calls by which values leave their transforms; return the values outside."""
    around = transforms(graph) or []
    if not around:
        return list(outputs)
    known = _live_levels(graph)
    order = {node: place for place, node in enumerate(graph.nodes)}
    made: list[fx.Node] = []
    for output in outputs:
        values = [output]
        for level in sorted(known[output], reverse=True):
            inside = next(
                (t for t in around
                 if t.level == level and order[t.start] < order[output] < order[t.end]),
                None,
            )  # fmt: skip
            if inside is None:
                return list(outputs)
            values = [leaving for value in values for leaving in _leaving(graph, inside, value)]
        made += values
    return made


def _leaving(graph: fx.Graph, transform: Transform, value: fx.Node) -> list[fx.Node]:
    """Add the calls by which a value leaves a transform; for jvp, so does its tangent.

    Torch 2.13 wraps the calls of gradients in functions of its own, which its graphs have.
    """
    predispatch = torch._functorch.predispatch
    with graph.inserting_before(_exit_point(transform)):
        if transform.kind == "vmap":
            size: Any = transform.start.args[0]
            args = (value, transform.level, size, 0)
            return [graph.call_function(predispatch._remove_batch_dim, args)]
        parts = [value]
        if transform.kind == "jvp" and _is_dual(value):
            unpack = getattr(predispatch, "_unpack_dual", torch._unpack_dual)
            pair = graph.call_function(unpack, (value,), {"level": 0})
            parts = [graph.call_function(operator.getitem, (pair, k)) for k in (0, 1)]
        eager: Any = torch._functorch.eager_transforms
        unwrap = eager._unwrap_for_grad
        return [graph.call_function(unwrap, (part, transform.level)) for part in parts]


def _exit_point(transform: Transform) -> fx.Node:
    """Return the call before which values leave: the end, or the end of the dual level in it."""
    node = transform.start
    depth = 0
    while node is not transform.end:
        name = function_name(node)
        if match := NESTING.match(name):
            depth += 1 if match[2] == "in" else -1
        if name == "_exit_dual_level" and depth == 1:
            return node
        node = node.next
    return transform.end


def _is_dual(value: fx.Node) -> bool:
    """Return whether a value has a tangent because it depends on a dual."""
    seen, queue = {value}, [value]
    for node in queue:
        name = function_name(node)
        if name == "_make_dual":
            return True
        if name != "_unpack_dual":
            fresh = [n for n in node.all_input_nodes if n not in seen]
            seen.update(fresh)
            queue += fresh
    return False


def remove_transform(graph: fx.Graph, transform: Transform) -> bool:
    """Remove a transform. vmap leaves its first element; grad and jvp leave the primal function.

    Derivatives and everything that depends on them are removed. Returns False if nothing is left.
    """
    inside: list[fx.Node] = []
    node = transform.start
    while node is not transform.end:
        inside.append(node)
        node = node.next
    gone: set[fx.Node] = set()
    passed: set[fx.Node] = set()
    for node in [*inside, transform.end]:
        name = function_name(node)
        at_level = name in (*WRAPS, *UNWRAPS) and _level(node) == transform.level
        if node in gone or any(n in gone for n in node.all_input_nodes):
            gone.add(node)
        elif at_level and transform.kind == "vmap":
            _take_first(graph, node)
            passed.add(node)
        elif at_level:
            node.replace_all_uses_with(_operand(node))
            passed.add(node)
        elif transform.kind != "vmap" and _differentiates(node, transform):
            gone.add(node)
    if transform.kind == "jvp":
        _remove_duals(graph, inside, gone)
    for node in list(graph.nodes):
        if node.op != "output" and any(n in gone for n in node.all_input_nodes):
            gone.add(node)
    kept = [n for n in graph.output_node().all_input_nodes if n not in gone]
    graph.output_node().args = (tuple(kept),)
    markers = {transform.start, transform.end}
    if transform.kind != "vmap":
        markers |= {n for n in inside if _is_marker(n, transform)}
    for node in reversed(list(graph.nodes)):
        if node in markers and node.users:  # it returns its argument
            node.replace_all_uses_with(_operand(node))
        if node in gone or node in markers or (node in passed and not node.users):
            graph.erase_node(node)
        elif node in inside and function_name(node) in (*WRAPS, *UNWRAPS):
            _renumber(node, transform.level)
    return bool(kept) or any(n.op.startswith("call") for n in graph.nodes)


def _renumber(node: fx.Node, gone: int) -> None:
    """Adjust the level that a call names after an outer level was removed."""
    place = 2 if function_name(node) == "_add_batch_dim" else 1
    level: Any = node.args[place]
    if level > gone:
        node.update_arg(place, level - 1)


def differentiated(graph: fx.Graph, transform: Transform) -> list[str]:
    """Return the inputs of a graph that a grad differentiates with respect to."""
    found: list[str] = []
    node = transform.start
    while transform.kind == "grad" and node is not transform.end:
        if function_name(node) == "_set_tensor_requires_grad":
            operand: Any = node.args[0]
            while isinstance(operand, fx.Node) and operand.op.startswith("call") and operand.args:
                operand = operand.args[0]
            if isinstance(operand, fx.Node) and operand.op == "placeholder":
                found.append(str(operand.target))
        node = node.next
    return found


def _operand(node: fx.Node) -> fx.Node:
    operand = node.args[0]
    assert isinstance(operand, fx.Node)
    return operand


def _take_first(graph: fx.Graph, node: fx.Node) -> None:
    """Replace a wrap of vmap by a slice, and an unwrap by a dimension of size 1."""
    with graph.inserting_before(node):
        if function_name(node) == "_add_batch_dim":
            made = graph.call_method("select", (node.args[0], node.args[1], 0))
        else:
            made = graph.call_method("unsqueeze", (node.args[0], node.args[3]))
    node.replace_all_uses_with(made)


def _differentiates(node: fx.Node, transform: Transform) -> bool:
    return transform.kind == "grad" and function_name(node) == "_autograd_grad"


def _is_marker(node: fx.Node, transform: Transform) -> bool:
    """Return whether a call only prepares a grad or a jvp."""
    name = function_name(node)
    own = {
        "grad": r"requires_grad",
        "jvp": r"_dual_level$|fwd_grad_enabled$",
    }[transform.kind]
    return re.search(own, name) is not None


def _remove_duals(graph: fx.Graph, inside: Sequence[fx.Node], gone: set[fx.Node]) -> None:
    """Replace duals by their primals, and remove tangents."""
    for node in inside:
        name = function_name(node)
        if name == "_make_dual":
            node.replace_all_uses_with(_operand(node))
            gone.add(node)
        elif name == "_unpack_dual":
            for user in list(node.users):
                if user.args[1] == 0:
                    user.replace_all_uses_with(_operand(node))
                gone.add(user)
            gone.add(node)
