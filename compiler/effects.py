"""What calls of an ATen graph do to memory: what they write and share, and which are pure."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

KNOWN_NAMESPACES = ("aten", "prims")
"""Operators outside these namespaces may have undeclared effects."""

UNDECLARED_VIEWS = (aten._unsafe_view.default,)
"""Operators whose results share memory although their schemas do not declare it."""


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the elements of a list or tuple; any other value alone."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def is_number(node: fx.Node) -> bool:
    """Return whether the value of a node is a number, symbolic or not."""
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool)


def overlaps(value: torch.Tensor) -> bool:
    """Return whether several indices refer to one element, as in an expanded tensor.

    No symbolic size or stride is compared, since that would be a guard.
    """
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size < 2)
        for size, stride in zip(value.shape, value.stride(), strict=True)
    )


def written_operands(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the operands that a call writes to, as the schema of its operator declares."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        positional = position < len(node.args)
        given = node.args[position] if positional else node.kwargs.get(argument.name)
        yield from (operand for operand in as_tuple(given) if isinstance(operand, fx.Node))


def may_share_memory(node: fx.Node) -> bool:
    """Return whether the result of a call may share memory with an operand."""
    if node.target is operator.getitem:
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        returns = node.target._schema.returns
        return node.target in UNDECLARED_VIEWS or any(r.alias_info is not None for r in returns)
    return not is_number(node)


def may_write(node: fx.Node) -> bool:
    """Return whether a call may write to its operands, or alias them without declaring it."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return node.target.namespace not in KNOWN_NAMESPACES or node.target._schema.is_mutable


def is_pure(node: fx.Node) -> bool:
    """Return whether a call is deterministic and has no side effect."""
    if node.op != "call_function":
        return False
    target = node.target
    if target is operator.getitem:
        return True
    if isinstance(target, torch._ops.OpOverload):
        if may_write(node) or torch.Tag.nondeterministic_seeded in target.tags:
            return False
        return bool(target._schema.returns) and not node.meta.get("unbacked_bindings")
    return getattr(target, "__module__", "") in ("_operator", "math", "torch")


def has_effect(node: fx.Node) -> bool:
    """Return whether a call must keep its order among other such calls."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in KNOWN_NAMESPACES:
            return True
        value = node.meta.get("val")
        no_result = value is None and not target._schema.returns
        return no_result or torch.Tag.nondeterministic_seeded in target.tags
    return isinstance(target, torch._ops.HigherOrderOperator)
