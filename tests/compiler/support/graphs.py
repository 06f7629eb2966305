"""Graphs in the form that passes take: ATen or torch-level FX with fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def aten_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The ATen graph of a function, every node with a fake tensor in meta["val"]."""
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(i) for i in inputs]
        return make_fx(function, tracing_mode="real")(*fakes)


def torch_graph(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.GraphModule:
    """The graph that Dynamo captures, before autograd."""
    found: list[fx.GraphModule] = []

    def backend(module: fx.GraphModule, examples: Any) -> Callable[..., Any]:
        found.append(module)
        return module.forward

    torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    return found[0]


def ops(module: fx.GraphModule) -> dict[str, int]:
    """How often each operator, function or method is called."""
    return dict(
        Counter(
            str(n.target) if n.op == "call_method" else _name(n.target)
            for n in module.graph.nodes
            if n.op.startswith("call")
        )
    )


def _name(target: Any) -> str:
    name = str(target) if isinstance(target, torch._ops.OpOverload) else target.__name__
    return name.removeprefix("aten.")


def applied(
    change: Callable[[fx.Graph], bool], module: fx.GraphModule
) -> tuple[bool, fx.GraphModule]:
    """Whether the pass reports a change, and the graph, which must still be valid."""
    changed = change(module.graph)
    module.graph.lint()
    module.recompile()
    return changed, module
