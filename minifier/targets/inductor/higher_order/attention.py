"""Attention with a score function, as calls of ATen in place of inductor's template.

Inductor writes the score and the mask function into the template. What it writes there has no unit
of its own, because a template cannot call ATen. With `lower.flex_attention` off, all of the
attention is calls of ATen, its score and mask function included.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.flex_attention import sdpa_dense, sdpa_dense_backward
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

ATTENTION: dict[Any, Callable[..., Any]] = {
    torch.ops.higher_order.flex_attention: sdpa_dense,
    torch.ops.higher_order.flex_attention_backward: sdpa_dense_backward,
}
"""Operator -> the function with which torch computes it in eager."""
CALLS_ATEN = "tcdebug_calls_aten"
"""The key in the `meta` of a node that has to be a call of ATen."""
POST_GRAD = Patch(
    "torch._inductor.compile_fx",
    "_recursive_post_grad_passes",
    "lower.flex_attention cannot be switched off, and tcdebug values does not compare graphs "
    "before and after post-grad passes",
    takes=("gm",),
)
PATCHES = (POST_GRAD,)


@contextlib.contextmanager
def attention(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every attention with a score function ask the gate before it is lowered."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def post_grad(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            result = original(gm, *args, **kwargs)
            for node in list(gm.graph.nodes):
                if node.target in ATTENTION and not gate.allows(f"lower.{node.target}", node.name):
                    _replace(gm, node)
            return result

        return post_grad

    with patched(POST_GRAD, make, log):
        yield


def _replace(gm: fx.GraphModule, node: fx.Node) -> None:
    """Replace an attention by the operators with which torch computes it in eager."""
    read = [n for n in node.all_input_nodes if n.op != "get_attr"]
    values = [n.meta["val"] for n in read]

    def compute(*given: Any) -> Any:
        known = dict(zip(read, given, strict=True))

        def value(n: fx.Node) -> Any:
            return known[n] if n in known else getattr(gm, str(n.target))

        args, kwargs = fx.map_arg((node.args, node.kwargs), value)
        return ATTENTION[node.target](*args, **kwargs)

    mode = torch._guards.detect_fake_mode(values)
    with torch._guards.tracing(None), mode or contextlib.nullcontext():
        traced = make_fx(compute)(*values)
    outputs = _inlined(gm, traced, node, read)
    for user in list(node.users):
        user.replace_all_uses_with(outputs[user.args[1]])
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)
    gm.recompile()


def _inlined(gm: fx.GraphModule, traced: fx.GraphModule, node: fx.Node, read: list[fx.Node]) -> Any:
    """Copy a traced graph before a node whose inputs it takes. Return the copies of its outputs."""
    copies = dict(zip(traced.graph.find_nodes(op="placeholder"), read, strict=True))
    with gm.graph.inserting_before(node):
        for n in traced.graph.nodes:
            if n.op == "get_attr":
                name = f"{node.name}{n.target}"
                setattr(gm, name, getattr(traced, str(n.target)))
                copies[n] = gm.graph.create_node("get_attr", name)
                copies[n].meta.update(n.meta)
            elif n.op == "call_function":
                copies[n] = gm.graph.node_copy(n, copies.__getitem__)
                copies[n].meta |= {CALLS_ATEN: True, "stack_trace": node.meta.get("stack_trace")}
    return fx.map_arg(traced.graph.output_node().args[0], copies.__getitem__)
