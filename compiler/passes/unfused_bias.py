"""Separates the bias from a matrix product on a GPU.

Matches addmm without factors whose result only generated loops read; they add the bias for free,
while launching a product with a bias takes the CPU 5 us longer than one without. In half precision,
the product is rounded once more, before the bias is added. A result of the graph stays one call.
"""

from __future__ import annotations

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
    """On a GPU, replace addmm by mm and add, if generated loops read the result."""
    kept = escaping(graph)
    changed = False
    for node in list(graph.nodes):
        if node.target is not aten.addmm.default or node.kwargs or node in kept:
            continue
        if not on_gpu(node) or not read_by_loops(node):
            continue
        bias, left, right = node.args
        with graph.inserting_before(node):
            product = graph.call_function(aten.mm.default, (left, right))
            total = graph.call_function(aten.add.Tensor, (product, bias))
        product.meta, total.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)
        changed = True
    return changed


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
