"""Runs chains of convolutions and poolings in channels-last layout.

Matches two-dimensional convolutions in a floating-point dtype with contiguous results, on a GPU
only without gradients, and the operators after them that compute the same result in every layout
(`FOLLOWERS`). Copies convert the layout where a chain begins and ends. Guarantees eager's strides
at every other node. Changes nothing if more elements would be copied than convolutions and poolings
read and write.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx

from tcdebug.compiler.effects import as_tuple
from tcdebug.compiler.ir.arithmetic.size_estimate import elements
from tcdebug.compiler.passes.replacement import FIXED_STRIDES

aten = torch.ops.aten
prims = torch.ops.prims

POOLS = (
    aten.max_pool2d_with_indices.default,
    aten.avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
)
FOLLOWERS = (
    *POOLS,
    operator.getitem,
    aten.cat.default,
    aten.constant_pad_nd.default,
    aten.detach.default,
    aten.mean.dim,
    aten.var_mean.correction,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.amax.default,
    aten.upsample_nearest2d.default,
    aten.upsample_bilinear2d.default,
    aten._to_copy.default,
    prims.convert_element_type.default,
)
"""Operators besides pointwise ones that compute the same result in every memory layout."""
BLOCK = 16
"""oneDNN converts layouts itself if channels come in such blocks. Otherwise its code is slower."""
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
VECTOR_BYTES, FEW = 16, 4
"""cuDNN's kernels read so many bytes of channels at once, or pad the few channels of an image."""


@dataclass
class Plan:
    """The changes of layout that the pass would make, and the copies they need."""

    results: dict[fx.Node, Any] = field(default_factory=dict)
    """Node whose layout would change -> its new fake result."""
    entering: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    """Value to copy to channels-last -> the convolutions that read it."""
    leaving: dict[fx.Node, None] = field(default_factory=dict)
    """Values of a new layout with a reader that needs the old layout."""
    gains: float = 0
    """Elements that convolutions and poolings read and write in channels-last layout, each times
    what it is worth."""

    @property
    def pays(self) -> bool:
        """Whether more elements are processed faster than are copied."""
        copied = [value.meta["val"] for value in (*self.entering, *self.leaving)]
        if not all(isinstance(value, torch.Tensor) for value in copied):
            return False
        return self.gains > sum(elements(value.shape) for value in copied)


def channels_last(graph: fx.Graph) -> bool:
    """Run chains of convolutions and poolings in channels-last layout."""
    plan = _plan(graph)
    if not plan.pays:
        return False
    old = {node: node.meta["val"] for node in plan.leaving}
    for node, result in plan.results.items():
        node.meta["val"] = result
    for value, convolutions in plan.entering.items():
        turned = _copy(graph, value, torch.channels_last)
        for node in convolutions:
            node.update_arg(0, turned)
    for value in plan.leaving:
        readers = [user for user in value.users if user not in plan.results]
        back = _copy(graph, value, torch.contiguous_format)
        back.meta["val"] = old[value]
        for reader in readers:
            reader.replace_input_with(value, back)
    return True


def _plan(graph: fx.Graph) -> Plan:
    plan = Plan()
    for node in graph.nodes:
        moved = [v for v in node.all_input_nodes if v in plan.results]
        if _is_convolution(node) and _turn(plan, node):
            plan.leaving.update(dict.fromkeys(v for v in moved if v is not node.args[0]))
            plan.gains += _worth(node) * _touched(plan, node)
        elif moved and _follows(node):
            result = node.target(*_values(plan, node.args), **_values(plan, node.kwargs))
            if _layout(result) != _layout(node.meta["val"]):
                plan.results[node] = result
            plan.gains += _touched(plan, node) if node.target in POOLS else 0
        else:
            plan.leaving.update(dict.fromkeys(moved))
    return plan


def _turn(plan: Plan, node: fx.Node) -> bool:
    """Plan a convolution of an image in channels-last layout; return False if its result is not."""
    value, function = node.args[0], cast(Any, node.target)
    assert isinstance(value, fx.Node)
    x = _value(plan, value)
    entering = not _laid_out(x, torch.channels_last)
    if entering:
        x = aten.clone.default(x, memory_format=torch.channels_last)
    result = function(x, *_values(plan, node.args[1:]))
    if not _laid_out(result, torch.channels_last):
        return False
    plan.results[node] = result
    if entering:
        plan.entering.setdefault(value, []).append(node)
    return True


def _is_convolution(node: fx.Node) -> bool:
    """Whether a node is a two-dimensional convolution that is faster in channels-last layout."""
    if node.target is not aten.convolution.default:
        return False
    value = node.meta["val"]
    return bool(
        value.dim() == 4
        and value.dtype in FLOATS
        and _laid_out(value, torch.contiguous_format)
        and (_has_onednn(value) or (value.device.type == "cuda" and not _saves(node.graph)))
    )


def _has_onednn(value: torch.Tensor) -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch's is
    return value.device.type == "cpu" and bool(available)


def _saves(graph: fx.Graph) -> bool:
    """Return whether a graph is a forward that saves tensors for backward."""
    return FIXED_STRIDES in graph.output_node().meta


def _worth(node: fx.Node) -> float:
    """Return what an element is worth to a convolution, compared to copying one.

    Decision 14 has the measurements.
    """
    given: Any = node.args
    x, value = given[0].meta["val"], node.meta["val"]
    if value.device.type == "cuda":
        return _worth_on_gpu(x, given[1].meta["val"], groups=given[8])
    if given[6]:  # it is transposed
        return 2
    if value.dtype != torch.float32 and torch.cpu.get_capabilities().get("amx_tile"):
        return 2
    in_blocks = all(isinstance(n, int) and n % BLOCK == 0 for n in (x.shape[1], value.shape[1]))
    return 0.25 if in_blocks else 1


def _worth_on_gpu(image: torch.Tensor, weight: torch.Tensor, *, groups: int) -> float:
    """Return the worth where cuDNN has kernels for tensor cores, which need channels last.

    It copies other images itself. Products of matrices (1 x 1) are as fast in both layouts.
    """
    if image.dtype == torch.float32 and not torch.backends.cudnn.allow_tf32:
        return 0
    channels = (weight.shape[0], weight.shape[1] * groups)
    whole = VECTOR_BYTES // image.element_size()
    if not all(isinstance(n, int) and (n % whole == 0 or n <= FEW) for n in channels):
        return 0
    return 0 if groups == 1 and weight.shape[2:].numel() == 1 else 1.5


def _follows(node: fx.Node) -> bool:
    """Return whether a node with a contiguous result can take channels-last operands instead."""
    if node.op != "call_function" or "val" not in node.meta:
        return False
    tags = getattr(node.target, "tags", ())
    if node.target not in FOLLOWERS and torch.Tag.pointwise not in tags:
        return False
    return all(
        isinstance(r, torch.Tensor) and _laid_out(r, torch.contiguous_format)
        for r in as_tuple(node.meta["val"])
    )


def _laid_out(value: torch.Tensor, memory_format: torch.memory_format) -> bool:
    """Return whether a tensor has a memory format.

    Symbolic sizes are compared as text, without guards.
    """
    return bool(_layout(value) == _layout(aten.clone.default(value, memory_format=memory_format)))


def _copy(graph: fx.Graph, value: fx.Node, memory_format: torch.memory_format) -> fx.Node:
    """Return a copy of a value in a layout, inserted right after the value."""
    with graph.inserting_after(_last_of_inputs(value)):
        node = graph.call_function(aten.clone.default, (value,), {"memory_format": memory_format})
    node.meta["val"] = aten.clone.default(value.meta["val"], memory_format=memory_format)
    return node


def _last_of_inputs(value: fx.Node) -> fx.Node:
    """The node after which a use of a value may be inserted; for an input, the last input."""
    while value.op == "placeholder" and value.next.op == "placeholder":
        value = value.next
    return value


def _value(plan: Plan, node: Any) -> Any:
    return plan.results.get(node, node.meta["val"])


def _values(plan: Plan, arguments: Any) -> Any:
    return fx.map_arg(arguments, lambda node: _value(plan, node))


def _touched(plan: Plan, node: fx.Node) -> int:
    """The number of elements of the images that a convolution or pooling reads and writes."""
    written = as_tuple(node.meta["val"])[0]
    return elements(_value(plan, node.args[0]).shape) + elements(written.shape)


def _layout(result: Any) -> Any:
    """Return the strides of the dimensions with more than one element, as text."""
    if isinstance(result, tuple | list):
        return [_layout(part) for part in result]
    return [str(s) for n, s in zip(result.shape, result.stride(), strict=True) if str(n) != "1"]
