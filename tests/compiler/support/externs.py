"""The operators that the compiler leaves to ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from judge import gradients
from stages import Captured, passed, recording_backend

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.lower.stage import lower_graph


def reasons(function: Callable[..., Any], *inputs: Any) -> dict[str, str]:
    """Operator -> the reason why it was left to ATen, over all graphs of a function.

    They include backward if an input requires a gradient.
    """
    torch._dynamo.reset()
    captured = Captured()
    once = torch.compile(function, backend=recording_backend("aten", captured))
    if any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
        gradients(once, inputs)
    else:
        once(*inputs)
    return {
        op: reason
        for module in captured.aten
        for _, op, reason in lower_graph(passed(module), Gate()).externs
    }
