"""Operators of control flow that call a body with arguments of the sizes of its trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

CONTROL_FLOW = tuple(
    getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl")
)


def undispatched(operator: Any) -> Callable[..., Any]:
    """Return the function that an operator ends in for tensors. Its dispatch takes 70 us or more.

    Under a dispatch mode, such as one that counts operators, the operator is called as it is.
    """
    kernel = operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch._C._len_torch_dispatch_stack():
            return operator(*args, **kwargs)
        return kernel(*args, **kwargs)

    return call
