"""Operators that the wrapper calls through torch's Python bindings, which is about 4 us faster.

A call of an overload object interprets its schema each time. A binding parses its arguments with
C++ code that is generated for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten

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
    aten.view.default: torch.Tensor.view,
}
"""Overload -> a binding that takes the same arguments in the same order."""
