"""Fills at indices through a mask if the value has a gradient.

torch computes the gradient of the value from the distinct indices, whose number depends on data.
torch 2.11 traces a wrong number, later versions do not trace it at all. Matches `index_fill` and
`index_fill_` of a tensor that has dimensions with a tensor that needs a gradient. Guarantees the
values and strides of eager; the gradient of the value is added in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.pregrad.node_values import argument, example_tensor


def filled(x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return x with `value` at `index`. A plain function, because FX can print it as Python."""
    places = torch.zeros(x.shape[dim], dtype=torch.bool, device=x.device)
    shape = [1] * x.dim()
    shape[dim] = -1
    mask = places.index_fill(0, index, True).reshape(shape)
    return torch.where(mask, value.to(x.dtype), x)


def fill_in_place(
    x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Store `value` at `index` of x, and return x."""
    return x.copy_(filled(x, dim, index, value))


CALLS: dict[tuple[str, Any], Callable[..., torch.Tensor]] = {
    ("call_function", torch.index_fill): filled,
    ("call_method", "index_fill"): filled,
    ("call_method", "index_fill_"): fill_in_place,
}
"""(kind of node, what it calls) -> the replacement."""


def masked_index_fill(graph: fx.Graph) -> bool:
    """Fill at indices through a mask if the value has a gradient, which torch cannot trace."""
    changed = False
    for node in list(graph.nodes):
        replacement = CALLS.get((node.op, node.target))
        if replacement is None:
            continue
        arguments = [
            argument(node, k, name) for k, name in enumerate(("input", "dim", "index", "value"))
        ]
        x, value = (example_tensor(arguments[k]) for k in (0, 3))
        if x is None or value is None or not value.requires_grad:
            continue
        if x.dim() == 0 or not isinstance(arguments[1], int):
            continue
        with graph.inserting_before(node):
            replaced = graph.call_function(replacement, tuple(arguments))
        replaced.meta = dict(node.meta)
        node.replace_all_uses_with(replaced)
        graph.erase_node(node)
        changed = True
    return changed
