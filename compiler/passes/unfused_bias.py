"""Separates the bias from matrix products and convolutions on a GPU.

Matches addmm without factors whose result only generated loops read; they add the bias for free,
while launching a product with a bias takes the CPU 5 us longer than one without. In half precision,
the product is rounded once more, before the bias is added. A result of the graph stays one call.
Matches every convolution: ATen adds the bias in a kernel of its own, which takes twice as long as a
generated one, and a generated one also computes what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import may_share_memory
from tcdebug.compiler.passes.replacement import STRIDE_SENSITIVE, escaping

aten = torch.ops.aten

READERS_OF_MEMORY = frozenset(
    (
        aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default,
        aten.convolution.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    )
)  # fmt: skip
"""Operators that a library computes, so that their operands must be in memory."""


def unfused_bias(graph: fx.Graph) -> bool:
    """On a GPU, add the bias of a product or convolution in the loops that read the result."""
    kept = escaping(graph)
    changed = False
    for node in list(graph.nodes):
        if node.kwargs or not on_gpu(node):
            continue
        if node.target is aten.addmm.default and node not in kept and read_by_loops(node):
            bias, *factors = node.args
            _separate(graph, node, aten.mm.default, factors, bias)
        elif node.target is aten.convolution.default and node.args[2] is not None:
            image, weight, bias, *rest = node.args
            shape = [-1, *[1] * (weight.meta["val"].dim() - 2)]
            with graph.inserting_before(node):
                shaped = graph.call_function(aten.view.default, (bias, shape))
            shaped.meta = {**node.meta, "val": aten.view.default(bias.meta["val"], shape)}
            _separate(graph, node, node.target, (image, weight, None, *rest), shaped)
        else:
            continue
        changed = True
    return changed


def _separate(graph: fx.Graph, node: fx.Node, target: Any, given: Sequence[Any], bias: Any) -> None:
    """Replace a node by a call without its bias, and an addition."""
    with graph.inserting_before(node):
        product = graph.call_function(target, tuple(given))
        total = graph.call_function(aten.add.Tensor, (product, bias))
    product.meta, total.meta = dict(node.meta), dict(node.meta)
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def on_gpu(node: fx.Node) -> bool:
    """Return whether the value of a node is a tensor on a GPU."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def read_by_loops(node: fx.Node) -> bool:
    """Whether no operator needs the value, or a view of it, in memory or needs its layout."""
    readers = [user for user in node.users if user.op != "output"]
    for user in readers:
        if user.target in READERS_OF_MEMORY or user.target in STRIDE_SENSITIVE:
            return False
        if may_share_memory(user) and not read_by_loops(user):
            return False
    return bool(node.users)
