"""Removes attention masks that mask nothing.

The fastest kernels take no mask. Matches masks that depend on no input, are all true or all zero
(`intervals`), and are never written to. Guarantees the layout that the result had with the mask.
Attention with dropout keeps its mask: a different kernel would draw different random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg

from tcdebug.compiler.pregrad.intervals import RULES, Interval, intervals, is_view
from tcdebug.compiler.pregrad.node_values import argument, example

ATTENTION = torch.nn.functional.scaled_dot_product_attention

MASK = 3
"""The position of `attn_mask` among the arguments."""

METADATA = ("size", "dim", "numel")
"""Methods that read no element."""

OPERANDS = ((0, "query"), (1, "key"), (2, "value"))

SHORTEST = 16
"""The lanes of a vector. With fewer keys, attention on a CPU without a mask gives zeros for a query
that contains NaN."""

REARRANGING = ("transpose", "permute", "flatten", "reshape", "contiguous")
"""Methods that may have the same result for two layouts of their input."""


def redundant_masks(graph: fx.Graph) -> bool:
    """Remove an attention mask that masks nothing, because the fastest kernels take no mask."""
    attentions = [n for n in graph.nodes if n.target is ATTENTION and _mask(n) is not None]
    known = intervals(graph) if attentions else {}
    changed = False
    for node in attentions:
        mask = _mask(node)
        if mask is None or mask not in known or not _masks_nothing(mask, known):
            continue
        if _supported(node, mask) and _remove(graph, node):
            _erase(graph, mask, known)
            changed = True
    return changed


def _mask(node: fx.Node) -> fx.Node | None:
    mask = argument(node, MASK, "attn_mask")
    return mask if isinstance(mask, fx.Node) else None


def _masks_nothing(mask: fx.Node, known: Mapping[fx.Node, Interval]) -> bool:
    """Return whether a mask is all true or all zero, and stays so until attention reads it."""
    value = example(mask)
    nothing = Interval(1, 1) if value.dtype == torch.bool else Interval(0, 0)
    if known[mask] != nothing or value.requires_grad:
        return False
    sources, waiting = {mask}, [mask]
    while waiting:
        found = {n for n in waiting.pop().all_input_nodes if n in known} - sources
        sources |= found
        waiting += found
    return all(_only_read(n) for n in sources)


def _only_read(node: fx.Node) -> bool:
    """Return whether nothing writes to the memory of a tensor. Unknown calls count as writes."""
    for user in node.users:
        if user.op == "output" or user.target is ATTENTION or user.target in METADATA:
            continue
        if not user.op.startswith("call_") or user.target not in RULES or "out" in user.kwargs:
            return False
        if is_view(user) and not _only_read(user):
            return False
    return True


def _supported(node: fx.Node, mask: fx.Node) -> bool:
    """Return whether removing a mask that masks nothing leaves the result the same."""
    result, value = example(node), example(mask)
    query, key, _ = operands = [example(argument(node, k, name)) for k, name in OPERANDS]
    # values without a fake mode belong to a finished vmap or torch.func.grad, or to a subclass
    if any(getattr(t, "fake_mode", None) is None for t in (result, *operands)):
        return False
    if any(t.layout != torch.strided for t in operands):
        return False
    if argument(node, 4, "dropout_p", 0.0) != 0 or argument(node, 5, "is_causal", False):
        return False
    if query.device.type == "cpu" and not statically_known_true(key.shape[-2] >= SHORTEST):
        return False
    # if the dtypes of result and operands differ, autocast is on, which casts the mask too
    return result.dtype == query.dtype or value.dtype in (torch.bool, query.dtype)


def _remove(graph: fx.Graph, node: fx.Node) -> bool:
    """Remove the mask, unless the result cannot get the layout that it had with the mask."""
    old = example(node)
    with old.fake_mode, torch.set_grad_enabled(old.requires_grad):
        new = _without_mask(node, old.dtype)
        if new.dtype != old.dtype or not _equal(new.shape, old.shape):
            return False
        rearranged = _rearranged(node, new)
        row_major = old.clone(memory_format=torch.contiguous_format)
    if rearranged is None and not _equal(old.stride(), row_major.stride()):
        return False
    if len(node.args) > MASK:
        node.update_arg(MASK, None)
    else:
        node.update_kwarg("attn_mask", None)
    if rearranged is None:
        with graph.inserting_after(node):
            copy = graph.call_method("clone", (node,), {"memory_format": torch.contiguous_format})
        copy.meta = dict(node.meta)
        node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
    for changed, value in rearranged or [(node, new)]:
        changed.meta["example_value"] = value
    return True


def _without_mask(node: fx.Node, dtype: torch.dtype) -> torch.Tensor:
    """Return the fake result of attention without a mask, in the layout of the kernel used then."""
    arguments = [example(argument(node, k, name)).to(dtype) for k, name in OPERANDS]
    options = {
        name: map_arg(argument(node, k, name, default), example)
        for k, name, default in ((6, "scale", None), (7, "enable_gqa", False))
    }
    return ATTENTION(*arguments, **options)


def _rearranged(node: fx.Node, value: torch.Tensor) -> list[tuple[fx.Node, torch.Tensor]] | None:
    """Return the calls after which the new layout no longer matters, with their new fake results.

    None if another call depends on the layout, or if the result has several users.
    """
    found = [(node, value)]
    while not _equal(value.stride(), example(node).stride()):
        user = next(iter(node.users)) if len(node.users) == 1 else None
        if user is None or user.op != "call_method" or user.target not in REARRANGING:
            return None
        args, kwargs = map_arg((user.args[1:], dict(user.kwargs)), example)
        value = getattr(value, user.target)(*args, **kwargs)
        node = user
        found.append((node, value))
    return found


def _equal(left: Sequence[int | torch.SymInt], right: Sequence[int | torch.SymInt]) -> bool:
    """Return whether sizes or strides are known to be equal. Adds no guard."""
    if len(left) != len(right):
        return False
    return all(statically_known_true(x == y) for x, y in zip(left, right, strict=True))


def _erase(graph: fx.Graph, node: fx.Node, known: Mapping[fx.Node, Interval]) -> None:
    """Remove an unused constant, and the constants that only it used."""
    if node.users or node not in known:
        return
    sources = node.all_input_nodes
    graph.erase_node(node)
    for source in sources:
        _erase(graph, source, known)
