"""The operators that the compiler leaves to ATen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from judge import gradients
from stages import Captured, passed, recording_backend
from torch import fx

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import ExternCalled
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.lower.stage import lower_graph
from tcdebug.compiler.pipeline import compile_captured


class Externs(EventLog):
    """A log that keeps only the operators that a compile leaves to ATen, each with the reason."""

    def __init__(self) -> None:
        super().__init__(None)
        self.reasons: dict[str, str] = {}

    def bind(self, **context: Any) -> Externs:
        """The log itself."""
        return self

    def emit(self, event: Event, **context: Any) -> None:
        """Keep the operator of an event."""
        if isinstance(event, ExternCalled):
            self.reasons[event.op] = event.reason


def compiled_with_reasons(
    function: Callable[..., Any], **options: Any
) -> tuple[Callable[..., Any], Mapping[str, str]]:
    """The function compiled by the whole compiler, and what its graphs leave to ATen.

    The mapping, operator -> reason, is filled when a call compiles a graph.
    """
    log = Externs()

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_captured(module, inputs, Options.from_env(), log)

    return torch.compile(function, backend=backend, **options), log.reasons


def reasons(function: Callable[..., Any], *inputs: Any) -> dict[str, str]:
    """Operator -> the reason why it was left to ATen, over all graphs of a function.

    They include backward if an input requires a gradient.
    """
    torch._dynamo.reset()
    captured = Captured(interpreted="aten")
    once = torch.compile(function, backend=recording_backend(captured))
    if any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
        gradients(once, inputs)
    else:
        once(*inputs)
    return {
        op: reason
        for module in captured.aten
        for _, op, reason in lower_graph(passed(module), Gate()).externs
    }
