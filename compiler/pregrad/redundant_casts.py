"""Removes conversions to the dtype that a tensor has.

Matches `x.to(dtype)` and methods such as `x.float()` without further arguments. Guarantees eager's
aliasing: eager returns x itself.
"""

from __future__ import annotations

import torch
from torch import fx

METHODS = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "bool": torch.bool,
}


def redundant_casts(graph: fx.Graph) -> bool:
    """Remove x.float() and x.to(dtype) if x has the dtype. Eager returns x itself."""
    changed = False
    for node in list(graph.nodes):
        source = node.args[0] if node.args else None
        if node.op != "call_method" or not isinstance(source, fx.Node):
            continue
        value = source.meta.get("example_value")
        if isinstance(value, torch.Tensor) and value.dtype == _target_dtype(node):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            changed = True
    return changed


def _target_dtype(node: fx.Node) -> torch.dtype | None:
    """Return the dtype of a conversion; None if it has further arguments."""
    if node.kwargs:
        return None
    if node.target == "to" and len(node.args) == 2 and isinstance(node.args[1], torch.dtype):
        return node.args[1]
    return METHODS.get(str(node.target)) if len(node.args) == 1 else None
