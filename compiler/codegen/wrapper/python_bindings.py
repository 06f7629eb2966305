"""Operators that the wrapper calls in a faster way than through torch's operator objects.

A call of an overload object interprets its schema each time. A binding of Python parses its
arguments with C++ code that is generated for it, which is about 4 us faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcdebug.compiler.operators.control_flow import CONTROL_FLOW, undispatched

aten = torch.ops.aten


def _in_order(token: Any, target: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Call an operator with an effect, such as the check of a factorisation.

    The calls of a wrapper run in order, so the token that orders them stays as it is.
    """
    result = target(*args, **kwargs)
    kept = torch.empty(0) if token is None else token
    return (kept, *result) if isinstance(result, tuple) else (kept, result)


DIRECT: Mapping[Callable[..., Any], Callable[..., Any]] = {
    aten.addmm.default: torch.addmm,
    aten.as_strided.default: torch.as_strided,
    aten.baddbmm.default: torch.baddbmm,
    aten.bmm.default: torch.bmm,
    aten.convolution.default: torch.convolution,
    aten.expand.default: torch.Tensor.expand,
    aten.mm.default: torch.mm,
    aten.permute.default: torch.permute,
    aten.select.int: torch.select,
    aten.squeeze.dim: torch.squeeze,
    aten.squeeze.dims: torch.squeeze,
    aten.t.default: torch.t,
    aten.transpose.int: torch.transpose,
    aten.unsqueeze.default: torch.unsqueeze,
    torch.ops.higher_order.with_effects: _in_order,
    aten.view.default: torch.Tensor.view,
} | {operator: undispatched(operator) for operator in CONTROL_FLOW}
"""Operator -> a function that takes the same arguments in the same order."""
