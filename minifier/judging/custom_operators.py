"""Finds custom operators whose registration does not match their kernels.

A compiler trusts the registration of a custom operator: its schema says what it writes and which
results share memory, and its fake kernel gives the sizes, strides and dtypes of its results. If
these are wrong, no layer of torch is at fault, although the graph fails only when compiled.
`torch.library.opcheck` calls the operator with copies of the arguments that it has in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from tcdebug.minifier.cases.case import Case, attributes, tensors_of
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.judging.replay import run

TORCHS = frozenset(
    (
        "aten", "prim", "prims", "rngprims", "debugprims", "quantized", "mkldnn", "onednn",
        "inductor", "_inductor_test", "_test", "c10d", "c10d_functional", "_c10d_functional",
        "fsdp", "streams", "symm_mem",
    )
)  # fmt: skip
"""Namespaces of operators that torch registers itself."""
PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors that have values. Others are subclasses, or stand for tensors in a trace."""
Objections = dict[tuple[str, str], str]
"""What opcheck says, by operator and check."""
CHECKS = ("test_schema", "test_faketensor")
"""The checks of opcheck that are run: the schema, and the fake kernel."""


def custom_operators(module: fx.GraphModule) -> Iterator[OpOverload]:
    """Yield the operators of a graph and its nested graphs that torch did not register."""
    for node in module.graph.nodes:
        if operator := custom_operator(node.target):
            yield operator
    for inner in attributes(module, module.graph).values():
        if isinstance(inner, fx.GraphModule):
            yield from custom_operators(inner)


def custom_operator(target: Any) -> OpOverload | None:
    """Return the custom operator that a node calls; None if it has several overloads.

    For `torch.ops.mine.f` that is `torch.ops.mine.f.default`.
    """
    if isinstance(target, OpOverloadPacket):
        names = target.overloads()  # type: ignore[no-untyped-call] # torch has no annotation
        target = getattr(target, names[0]) if len(names) == 1 else None
    if isinstance(target, OpOverload) and target.namespace not in TORCHS:
        return target
    return None


def misregistered(case: Case) -> list[str]:
    """Return opcheck's objections to the custom operators of a case, one per operator and check.

    The case runs once in eager, without gradients. Raises what it raises.
    """
    objections: Objections = {}
    with torch.no_grad():  # with gradients, a branch or the body of a loop would only be traced
        run(checked(case.module, objections), case)
    return [
        f"the custom operator {name} is registered wrongly, says {check} of "
        f"torch.library.opcheck: {what}"
        for (name, check), what in objections.items()
    ]


def checked(module: fx.GraphModule, objections: Objections) -> fx.GraphModule:
    """Return a copy of a graph and its nested graphs that checks custom operators it calls."""
    graph, _ = copy_graph(module.graph)
    for node in graph.nodes:
        if operator := custom_operator(node.target):
            node.target = _checked_operator(operator, objections)
    copy = fx.GraphModule(module, graph)
    for name, inner in attributes(module, module.graph).items():
        if isinstance(inner, fx.GraphModule):
            copy.set_submodule(name, checked(inner, objections))
    return copy


def _checked_operator(operator: OpOverload, objections: Objections) -> Callable[..., Any]:
    """Return a function that calls the operator, and checks it for each new kind of arguments."""
    seen = set()

    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = list(tensors_of((args, kwargs)))
        kinds = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
        traced = any(type(t) not in PLAIN for t in tensors)
        if not traced and kinds not in seen:
            seen.add(kinds)
            said = torch.library.opcheck(
                operator, args, kwargs, test_utils=CHECKS, raise_exception=False
            )
            for check, found in said.items():
                if isinstance(found, BaseException):
                    text = " ".join(str(found).split())
                    objections.setdefault((str(operator), check), text)
        return operator(*args, **kwargs)

    return call
