"""pregrad.dense_mask"""

from __future__ import annotations

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

DEVICES = frozenset({"cuda"})
"""Where attention has kernels that take a mask of last stride 1 only."""

MASK = 3
"""The place of `attn_mask` among the arguments."""


def dense_mask(graph: fx.Graph) -> bool:
    """On a GPU, attention gets a mask of last stride 1: no fused kernel takes another.

    Each gets a copy right before it: the mask may be written to between two attentions. Where it
    is not, `passes.common_subexpressions` leaves one copy.
    """
    changed = False
    for node in list(graph.nodes):
        if node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        mask = node.args[MASK] if len(node.args) > MASK else node.kwargs.get("attn_mask")
        if not isinstance(mask, fx.Node) or not _refused(mask.meta.get("example_value")):
            continue
        with graph.inserting_before(node):
            dense = _dense(graph, mask)
        if len(node.args) > MASK:
            node.update_arg(MASK, dense)
        else:
            node.update_kwarg("attn_mask", dense)
        changed = True
    return changed


def _refused(value: object) -> bool:
    """Whether a mask is on a GPU and its last dimension is not contiguous.

    A mask within vmap or torch.func.grad is left alone: it is no fake tensor, but one of a level
    that ended with the capture, and nothing can be computed of it.
    """
    if not isinstance(value, torch.Tensor) or type(value) is torch.Tensor:
        return False
    if value.layout != torch.strided or value.dim() < 2:
        return False
    if value.device.type not in DEVICES or statically_known_true(value.shape[-1] <= 1):
        return False
    return not statically_known_true(value.stride(-1) == 1)


def _dense(graph: fx.Graph, mask: fx.Node) -> fx.Node:
    """A copy in row-major order; batches and heads over which the mask is expanded stay so.

    Where the mask wants a gradient they are copied: each may want one of its own.
    """
    value: torch.Tensor = mask.meta["example_value"]
    expanded = [] if value.requires_grad else _expanded(value)
    result = mask
    for dim in expanded:
        example = result.meta["example_value"].narrow(dim, 0, 1)
        result = _method(graph, example, "narrow", result, dim, 0, 1)
    # not contiguous(): that asks for the strides, which adds guards where they are symbolic
    example = result.meta["example_value"].clone(memory_format=torch.contiguous_format)
    result = _method(graph, example, "clone", result, memory_format=torch.contiguous_format)
    if expanded:
        result = _method(graph, example.expand_as(value), "expand_as", result, mask)
    return result


def _expanded(value: torch.Tensor) -> list[int]:
    """The dimensions before the last two whose elements are one in memory."""
    return [
        dim
        for dim in range(value.dim() - 2)
        if statically_known_true(value.stride(dim) == 0)
        and statically_known_true(value.shape[dim] > 1)
    ]


def _method(
    graph: fx.Graph, example: torch.Tensor, name: str, *args: object, **kwargs: object
) -> fx.Node:
    made = graph.call_method(name, args, kwargs)  # type: ignore[arg-type] # nodes and numbers
    made.meta["example_value"] = example
    return made
