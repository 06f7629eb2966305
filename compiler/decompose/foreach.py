"""Decomposes `_foreach` operators into one operator per tensor of the list.

Optimizers call these operators on CUDA tensors. Each one is a call of ATen that reads and writes
all tensors of a list. Their parts fuse: an update of a parameter becomes one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten
PREFIX = "_foreach_"
SAME_NAME = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min",
    "clone", "copy", "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp",
    "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul", "neg",
    "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc",
)  # fmt: skip
"""Operators whose operator on one tensor has the same name and the same order of arguments."""
UNPACKED = ("addcdiv.Tensor", "addcmul.Tensor")
"""Overloads whose numbers are a tensor, which only the CPU can read. They stay calls of ATen."""


def _norm(x: torch.Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return aten.linalg_vector_norm(x, ord, dtype=dtype)


OTHERS: dict[str, Callable[..., Any]] = {"norm": _norm, "zero": aten.zeros_like}
"""Operators whose operator on one tensor has another name."""


def _product(name: str) -> Callable[..., Any]:
    """addcmul or addcdiv, which take their factor by name."""

    def one(x: Any, first: Any, second: Any, value: Any = 1) -> Any:
        return getattr(aten, name)(x, first, second, value=value)

    return one


def _for_one(name: str, overload: str) -> Callable[..., Any]:
    """Return the operator on one tensor."""
    if overload != "List" and name in ("maximum", "minimum"):  # ATen's take tensors only
        return aten.clamp_min if name == "maximum" else aten.clamp_max
    if name in ("addcdiv", "addcmul"):
        return _product(name)
    found: Callable[..., Any] = getattr(aten, name)
    return found


def _for_each(op: torch._ops.OpOverload, one: Callable[..., Any]) -> Callable[..., Any]:
    """Return the operator on lists, as calls of the operator on one tensor."""
    listed = [isinstance(argument.type, torch.ListType) for argument in op._schema.arguments]

    def decompose(*args: Any, **kwargs: Any) -> list[Any]:
        several = [given for given, is_list in zip(args, listed, strict=False) if is_list]
        results: list[Any] = []
        for elements in zip(*several, strict=True):
            left = iter(elements)
            given = [next(left) if listed[k] else value for k, value in enumerate(args)]
            results.append(one(*given, **kwargs))
        return results

    return decompose


def _operators(name: str) -> Iterator[torch._ops.OpOverload]:
    """Yield the overloads that return new tensors; none if this torch has no such operator."""
    packet = getattr(aten, PREFIX + name, None)
    for overload in packet.overloads() if packet is not None else ():
        op = getattr(packet, overload)
        if not op._schema.is_mutable and f"{name}.{overload}" not in UNPACKED:
            yield op


def _table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    names = (*SAME_NAME, *OTHERS)
    return {
        op: _for_each(op, OTHERS.get(name) or _for_one(name, op._overloadname))
        for name in names
        for op in _operators(name)
    }


FOREACH: dict[torch._ops.OpOverload, Callable[..., Any]] = _table()
