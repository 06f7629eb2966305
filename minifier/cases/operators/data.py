"""Assignments to `x.data`: how they are written, and how gradients of such graphs are computed.

Dynamo captures `x.data = y` as `set_` without gradients, followed by a correction of the version of
`x`. It does not capture these calls themselves. Nor can the function that corrects the version be
passed to another process. From torch 2.15 on it captures an operator of its own instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.subclasses.parts import is_wrapper

GET = re.compile(r"torch\._C\._autograd\._get_data_attr\((\w+)\)")
SET = re.compile(r"setattr\((\w+), 'data', (\w+)\)")
CORRECTION = "_lower_version_count_by_1"
"""The function of Dynamo that corrects the version. It is local to a method of Dynamo."""
ASSIGNMENT = "shallow_copy_data_"
"""The operator that torch 2.15 has for the assignment."""


def restore_assignments(graph: fx.Graph) -> None:
    """Replace what Dynamo captures for `x.data = y` by that assignment."""
    for node in list(graph.nodes):
        if (replaced := _assigning(node)) is None:
            continue
        assigning = replaced[-1]
        changed, data = assigning.args
        with graph.inserting_before(assigning):
            graph.call_function(setattr, (changed, "data", data))
        for call in replaced:
            call.replace_all_uses_with(changed)
            graph.erase_node(call)


def _assigning(node: Any) -> tuple[Any, ...] | None:
    """Return the calls that assign to `x.data` and end with a node, the last one first."""
    name = getattr(node.target, "__name__", "")
    if name == ASSIGNMENT:
        return (node,)
    if name != CORRECTION:
        return None
    (called,) = node.args
    if called.target is not torch.Tensor.set_ or len(called.args) != 2:
        return None
    return node, called


def as_attribute(line: str) -> str:
    """Return a line of a graph with `x.data` as a program has it."""
    return SET.sub(r"\1.data = \2", GET.sub(r"\1.data", line))


def storages(leaves: Sequence[torch.Tensor]) -> list[int]:
    """Return where the values of leaves lie; 0 for a tensor that consists of others."""
    return [0 if is_wrapper(leaf) else leaf.untyped_storage().data_ptr() for leaf in leaves]


def gradients(
    roots: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    before: Sequence[int],
) -> list[torch.Tensor | None]:
    """Return the gradients of leaves for the gradients `given` of the roots; None where unused.

    `before` is the `storages` of the leaves before the call. After AOTAutograd assigned to the data
    of a leaf, `torch.autograd.grad` finds no gradient for it, where `backward()` does.
    """
    if storages(leaves) == list(before):
        return list(torch.autograd.grad(roots, leaves, given, allow_unused=True))
    torch.autograd.backward(roots, given)
    return [leaf.grad for leaf in leaves]
