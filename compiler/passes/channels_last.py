"""Runs chains of convolutions and poolings in channels-last layout.

Matches two-dimensional convolutions in a floating-point dtype with contiguous results, on a GPU
only without gradients, and the operators after them that compute the same result in every layout
(`FOLLOWERS`). Copies convert the layout where a chain begins and ends. Guarantees eager's strides
at every other node. Changes nothing if more elements would be copied than convolutions and poolings
read and write.

For half types that a processor multiplies (AMX, AVX512-BF16), it also matches gradients of
convolutions and poolings, and tensors that are only saved for backward stay in channels-last
layout.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx

from tcdebug.compiler.effects import as_tuple
from tcdebug.compiler.ir.arithmetic.size_estimate import elements
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.passes.replacement import FIXED_STRIDES, same_numbers

aten = torch.ops.aten
prims = torch.ops.prims

IMAGES: dict[Any, tuple[int, ...]] = {
    aten.convolution.default: (0,),
    aten.convolution_backward.default: (0, 1),
    aten.max_pool2d_with_indices_backward.default: (0, 1, 7),
    aten.avg_pool2d_backward.default: (0, 1),
}
"""Convolutions, and gradients -> the positions of the images among the operands."""
TRANSPOSED: dict[Any, int] = {aten.convolution.default: 6, aten.convolution_backward.default: 7}
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

    halves: bool
    """Whether the processor has instructions for products of the convolutions' images.

    Gradients are then turned too, and tensors that are only saved for backward stay turned.
    """
    mixes: bool = True
    """Whether pointwise operators follow that also read operands of the old layout."""
    results: dict[fx.Node, Any] = field(default_factory=dict)
    """Node whose layout would change -> its new fake result."""
    entering: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)
    """Value to copy to channels-last -> the convolutions that read it."""
    leaving: dict[fx.Node, None] = field(default_factory=dict)
    """Values of a new layout with a reader that needs the old layout."""
    across: int = 0
    """With such products: elements that are read in one layout by a node with the other."""
    gains: float = 0
    """Elements that convolutions and poolings read and write in channels-last layout, each times
    what it is worth."""

    @property
    def worth(self) -> float:
        """How many more elements are processed faster than are copied or read across."""
        copied = [value.meta["val"] for value in (*self.entering, *self.leaving)]
        if not all(isinstance(value, torch.Tensor) for value in copied):
            return 0
        return self.gains - self.across - sum(elements(value.shape) for value in copied)


def channels_last(graph: fx.Graph) -> bool:
    """Run chains of convolutions and poolings in channels-last layout."""
    halves = any(n.target in IMAGES and _has_products(_image(n)) for n in graph.nodes)
    plan = _planned(graph, Plan(halves))
    if plan.across:
        plan = max(plan, _planned(graph, Plan(halves, mixes=False)), key=lambda plan: plan.worth)
    if plan.worth <= 0:
        return False
    old = {node: node.meta["val"] for node in plan.leaving}
    for node, result in plan.results.items():
        node.meta["val"] = result
    for value, convolutions in plan.entering.items():
        turned = _copy(graph, value, torch.channels_last)
        for node in convolutions:
            for position in IMAGES[node.target]:
                if node.args[position] is value:
                    node.update_arg(position, turned)
    for value in plan.leaving:
        readers = [user for user in value.users if user not in plan.results]
        back = _copy(graph, value, torch.contiguous_format)
        back.meta["val"] = old[value]
        for reader in readers:
            reader.replace_input_with(value, back)
    return True


def _planned(graph: fx.Graph, plan: Plan) -> Plan:
    """Complete a plan that is empty."""
    for node in graph.nodes:
        moved = [v for v in node.all_input_nodes if v in plan.results]
        unturned = _unturned(plan, node) if moved else []
        if plan.halves and _was_saved(node):
            plan.results[node] = node.meta["val"]
        elif _is_faster(plan, node) and _turn(plan, node):
            plan.leaving.update(dict.fromkeys(v for v in moved if v not in _images(node)))
            plan.gains += _worth(node) * _touched(plan, node)
        elif moved and _follows(node) and (plan.mixes or not unturned):
            result = node.target(*_values(plan, node.args), **_values(plan, node.kwargs))
            if unturned:
                result = aten.clone.default(result, memory_format=torch.channels_last)
                plan.across += sum(elements(v.meta["val"].shape) for v in unturned)
            if _layout(result) != _layout(node.meta["val"]):
                plan.results[node] = result
            plan.gains += _touched(plan, node) if node.target in POOLS else 0
        else:
            kept = _only_saved(node) if plan.halves else []
            _leave(plan, [value for value in moved if value not in kept])
    return plan


def _leave(plan: Plan, values: list[fx.Node]) -> None:
    """Plan copies for a reader that needs the old layout.

    The readers of an input are known to take its layout, but read it across.
    """
    for value in values:
        if value.op == "placeholder":
            plan.across += elements(value.meta["val"].shape)
        else:
            plan.leaving[value] = None


def _unturned(plan: Plan, node: fx.Node) -> list[fx.Node]:
    """Return the images of the old layout that a pointwise operator reads beside turned ones.

    None without products of halves, where the operator decides on the layout of its result.
    """
    if not plan.halves or torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return []
    others = [value for value in node.all_input_nodes if value not in plan.results]
    return [value for value in others if _is_unturned(value.meta["val"], node.meta["val"].shape)]


def _is_unturned(value: Any, size: torch.Size) -> bool:
    """Return whether a value is an image of a given size in the old layout."""
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or len(size) != 4:
        return False
    return same_numbers(value.shape, size) and not _laid_out(value, torch.channels_last)


def _was_saved(node: fx.Node) -> bool:
    """Return whether a node is an input that a forward may have left in channels-last layout."""
    value = node.meta.get("val")
    if node.op != "placeholder" or not isinstance(value, torch.Tensor) or value.dim() != 4:
        return False
    turned = _laid_out(value, torch.channels_last) and not _laid_out(value, torch.contiguous_format)
    return turned and value.device.type == "cpu"


def _only_saved(output: fx.Node) -> list[fx.Node]:
    """Return what a graph only saves for a backward."""
    visible = output.meta.get(FIXED_STRIDES)
    results: Any = output.args[0] if output.op == "output" and visible is not None else []
    return [value for value in results[visible:] if value not in results[:visible]]


def _images(node: fx.Node) -> list[fx.Node]:
    """Return the images among the operands of a convolution or gradient."""
    operands: Any = node.args
    return [operands[position] for position in IMAGES[node.target]]


def _image(node: fx.Node) -> torch.Tensor:
    """Return the fake image that is convolved or pooled, also that of a gradient."""
    images = _images(node)
    image: torch.Tensor = images[min(1, len(images) - 1)].meta["val"]
    return image


def _turn(plan: Plan, node: fx.Node) -> bool:
    """Plan a convolution of images in channels-last layout; return False if its result is not."""
    operands, entering = list(_values(plan, node.args)), []
    for position, image in zip(IMAGES[node.target], _images(node), strict=True):
        if not _laid_out(operands[position], torch.channels_last):
            turned = aten.clone.default(operands[position], memory_format=torch.channels_last)
            operands[position] = turned
            entering.append(image)
    result = cast(Any, node.target)(*operands)
    image = as_tuple(result)[0]
    if image is not None and not _laid_out(image, torch.channels_last):
        return False
    plan.results[node] = result
    for value in entering:
        plan.entering.setdefault(value, []).append(node)
    return True


def _is_faster(plan: Plan, node: fx.Node) -> bool:
    """Whether a node is a two-dimensional convolution that is faster in channels-last layout.

    With products of halves also gradients, of a pooling if its operand was saved in that layout.
    """
    if node.target not in IMAGES:
        return False
    x, value = _image(node), as_tuple(node.meta["val"])[0]
    if node.target is not aten.convolution.default and not _has_products(x):
        return False
    if node.target not in TRANSPOSED and _images(node)[1] not in plan.results:
        return False
    if x.dim() != 4 or x.dtype not in FLOATS:
        return False
    if value is not None and not _laid_out(value, torch.contiguous_format):
        return False
    return _has_onednn(x) or (x.device.type == "cuda" and not _saves(node.graph))


def _has_products(value: Any) -> bool:
    """Return whether a CPU has instructions for products of the half type of a tensor."""
    halves = isinstance(value, torch.Tensor) and value.dtype in HALVES
    return halves and value.device.type == "cpu" and _multiplies(value.dtype)


def _multiplies(dtype: torch.dtype) -> bool:
    found = torch.cpu.get_capabilities()
    return bool(found.get("amx_tile") or (dtype == torch.bfloat16 and found.get("avx512_bf16")))


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
    x, value = given[0].meta["val"], as_tuple(node.meta["val"])[0]
    if x.device.type == "cuda":
        return _worth_on_gpu(x, given[1].meta["val"], groups=given[8])
    if node.target not in TRANSPOSED:
        return 1
    if given[TRANSPOSED[node.target]] or _has_products(x):
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
    images = _images(node) if node.target in IMAGES else [node.args[0]]
    found = [*(_value(plan, image) for image in images), as_tuple(node.meta["val"])[0]]
    return sum(elements(image.shape) for image in found if image is not None)


def _layout(result: Any) -> Any:
    """Return the strides of the dimensions with more than one element, as text."""
    if isinstance(result, tuple | list):
        return [_layout(part) for part in result]
    return [str(s) for n, s in zip(result.shape, result.stride(), strict=True) if str(n) != "1"]
