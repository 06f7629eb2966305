"""Which calls of an ATen graph may be dropped, shared or moved."""

from __future__ import annotations

import operator

import torch
from torch import fx


def is_pure(node: fx.Node) -> bool:
    """Whether a call computes a value and does nothing else, and the same value each time."""
    if node.op != "call_function":
        return False
    target = node.target
    if target is operator.getitem:
        return True
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in ("aten", "prims") or target._schema.is_mutable:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags or not target._schema.returns:
            return False
        return not node.meta.get("unbacked_bindings")
    return getattr(target, "__module__", "") in ("_operator", "math", "torch")


def same_tensor(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes give tensors of one dtype, device, size and strides."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    return (
        x.dtype == y.dtype
        and x.device == y.device
        and x.layout == y.layout
        and _same_numbers(x.shape, y.shape)
        and (x.layout != torch.strided or _same_numbers(x.stride(), y.stride()))
        and x.is_conj() == y.is_conj()
        and x.is_neg() == y.is_neg()
    )


def _same_numbers(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Equal as expressions: comparing symbolic sizes as numbers would add guards."""
    return len(a) == len(b) and all(str(x) == str(y) for x, y in zip(a, b, strict=True))
