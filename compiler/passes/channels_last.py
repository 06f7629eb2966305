"""Runs chains of convolutions and poolings in channels-last layout.

Matches two-dimensional convolutions in a floating-point dtype with contiguous results, on a GPU
also their gradients, and the operators after them that compute the same result in every layout
(`FOLLOWERS`). Copies convert the layout where a chain begins and ends. Guarantees eager's strides
at every other node, except for tensors that forward saves for backward. Changes nothing if more
elements would be copied than convolutions and poolings read and write.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.passes.replacement import FIXED_STRIDES

aten = torch.ops.aten
prims = torch.ops.prims

IMAGES: dict[Any, int] = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
"""Operator -> the number of its first operands that are images."""
POOLS = (
    aten.max_pool2d_with_indices.default,
    aten.avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.max_pool2d_with_indices_backward.default,
    aten.avg_pool2d_backward.default,
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
UNKNOWN = 64
"""The assumed value of a symbolic size in cost estimates."""


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
        tensors = all(isinstance(value, torch.Tensor) for value in copied)
        return tensors and self.gains > sum(map(_elements, copied))


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
            for place, image in enumerate(_images(node)):
                if image is value:
                    node.update_arg(place, turned)
    for value in plan.leaving:
        readers = [u for u in value.users if u not in plan.results and _needs_strides(u, value)]
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
            plan.leaving.update(dict.fromkeys(v for v in moved if v not in _images(node)))
            plan.gains += _worth(node) * _touched(plan, node)
        elif moved and _follows(node):
            result = node.target(*_values(plan, node.args), **_values(plan, node.kwargs))
            if _layout(result) != _layout(node.meta.get("val")):
                plan.results[node] = result
            plan.gains += _touched(plan, node) if node.target in POOLS else 0
        else:
            plan.leaving.update(dict.fromkeys(v for v in moved if _needs_strides(node, v)))
    return plan


def _turn(plan: Plan, node: fx.Node) -> bool:
    """Plan a convolution of images in channels-last layout; return False if its result is not."""
    given, copied = list(_values(plan, node.args)), list[fx.Node]()
    for place, value in enumerate(_images(node)):
        if not _laid_out(given[place], torch.channels_last):
            given[place] = aten.clone.default(given[place], memory_format=torch.channels_last)
            copied.append(value)
    function: Any = node.target
    result = function(*given)
    if not all(_laid_out(r, torch.channels_last) for r in _tensors(result)[:1]):
        return False
    plan.results[node] = result
    for value in copied:
        plan.entering.setdefault(value, []).append(node)
    return True


def _images(node: fx.Node) -> list[fx.Node]:
    """The operands of a convolution, or of its gradient, that are images."""
    given: Any = node.args
    return list(given[: IMAGES.get(node.target, 0)])


def _needs_strides(reader: fx.Node, value: fx.Node) -> bool:
    """Return whether a reader that does not follow needs the old strides of a value.

    Tensors that forward returns only for backward may have others.
    """
    if reader.op != "output":
        return True
    if FIXED_STRIDES not in reader.meta:
        return True
    results: Any = reader.args[0]
    return value in results[: reader.meta[FIXED_STRIDES]]


def _is_convolution(node: fx.Node) -> bool:
    """Whether a node is a two-dimensional convolution that is faster in channels-last layout."""
    if node.target not in IMAGES:
        return False
    image: Any = node.args[0]
    value = image.meta["val"]
    return bool(
        value.dim() == 4
        and value.dtype in FLOATS
        and all(_laid_out(r, torch.contiguous_format) for r in _tensors(node.meta["val"]))
        and (value.device.type == "cuda" or _on_cpu(node, value))
    )


def _on_cpu(node: fx.Node, value: torch.Tensor) -> bool:
    return (
        value.device.type == "cpu"
        and node.target is aten.convolution.default
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # torch's is
    )


def _worth(node: fx.Node) -> float:
    """Return what an element is worth to a convolution, compared to copying one.

    Decision 14 has the measurements.
    """
    given: Any = node.args
    if given[0].meta["val"].device.type == "cuda":
        return _worth_on_gpu(node)
    x, value = given[0].meta["val"], node.meta["val"]
    if given[6]:  # it is transposed
        return 2
    if value.dtype != torch.float32 and torch.cpu.get_capabilities().get("amx_tile"):
        return 2
    in_blocks = all(isinstance(n, int) and n % BLOCK == 0 for n in (x.shape[1], value.shape[1]))
    return 0.25 if in_blocks else 1


def _worth_on_gpu(node: fx.Node) -> float:
    """Return the worth where cuDNN has kernels for tensor cores, which need channels last.

    It copies other images itself. Products of matrices (1 x 1) are as fast in both layouts.
    """
    count, given = len(_images(node)), list[Any](node.args)
    image, weight, groups = given[0].meta["val"], given[count].meta["val"], given[count + 7]
    if image.dtype == torch.float32 and not torch.backends.cudnn.allow_tf32:
        return 0
    channels = (weight.shape[0], weight.shape[1] * groups)
    whole = VECTOR_BYTES // image.element_size()
    if not all(isinstance(n, int) and (n % whole == 0 or n <= FEW) for n in channels):
        return 0
    return 0 if groups == 1 and weight.shape[2:].numel() == 1 else 1.5


def _follows(node: fx.Node) -> bool:
    """Return whether a node with a contiguous result can take channels-last operands instead."""
    if node.op != "call_function":
        return False
    tags = getattr(node.target, "tags", ())
    if node.target not in FOLLOWERS and torch.Tag.pointwise not in tags:
        return False
    results = _tensors(node.meta.get("val"))
    if not results:  # the missing gradient of an image
        return node.target is operator.getitem
    return all(_laid_out(r, torch.contiguous_format) for r in results)


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
    read = [_value(plan, value) for value in _images(node) or node.args[:1]]
    return sum(map(_elements, (*read, *_tensors(node.meta["val"])[:1])))


def _tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a result. Some gradients of a convolution may be missing."""
    results = result if isinstance(result, tuple | list) else (result,)
    return [r for r in results if isinstance(r, torch.Tensor)]


def _elements(value: torch.Tensor) -> int:
    """Return the estimated number of elements of a tensor."""
    return math.prod(n if isinstance(n, int) else UNKNOWN for n in value.shape)


def _layout(result: Any) -> Any:
    """Return the strides of the dimensions with more than one element, as text."""
    if isinstance(result, tuple | list):
        return [_layout(part) for part in _tensors(result)]
    if result is None:
        return []
    return [str(s) for n, s in zip(result.shape, result.stride(), strict=True) if str(n) != "1"]
