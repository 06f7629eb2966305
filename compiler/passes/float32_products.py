"""Computes products of half types in float32 on processors without instructions for them.

Matches the operators in `COSTS` on a CPU where oneDNN has no products of the operands' dtype:
bfloat16 without AVX-512, float16 without AVX512-FP16, and gradients of convolutions in float16 on
any processor. ATen then computes them in loops of its own, which take up to 100 times as long as
products in float32. Operands are converted if that takes less time than is saved. Guarantees that
operands keep their values, that products are summed in float32, as in ATen's loops, and that
results are rounded once and keep their strides.
Decision 28 has the measurements.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.effects import as_tuple
from tcdebug.compiler.ir.arithmetic.size_estimate import elements
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.passes.replacement import same_numbers

aten = torch.ops.aten
prims = torch.ops.prims

IN_FLOAT32 = 0.04
"""Nanoseconds of a multiplication in float32."""
CONVERSION, IN_MEMORY = 0.35, 0.1
"""Nanoseconds in which a thread converts an element, and in which memory moves it."""
CALL, CONVOLUTION, CONVOLUTION_BACKWARD = 5_000, 150_000, 250_000
"""Nanoseconds that a small call in float32 takes longer than one of ATen's loops."""
GROUP = 15_000
"""Nanoseconds of ATen's loops for each group of a convolution."""
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Number of dimensions -> the memory format in which channels are last."""


@dataclass(frozen=True)
class Cost:
    """How long a call takes, in nanoseconds on one thread."""

    multiplications: int
    in_half: float
    """The least time of a multiplication in ATen's loops."""
    in_float32: float = CALL
    """What a call in float32 takes besides its multiplications."""
    groups: int = 0

    def saves(self, converted: int, threads: int) -> bool:
        """Return whether float32 is faster, if so many elements must be converted."""
        saved = self.multiplications * (self.in_half - IN_FLOAT32) + self.groups * GROUP
        conversion = max(CONVERSION / threads, IN_MEMORY)
        return saved / threads > self.in_float32 + converted * conversion


def float32_products(graph: fx.Graph) -> bool:
    """On a CPU without instructions for products of a half type, compute them in float32."""
    changed, threads = False, torch.get_num_threads()
    for node in list(graph.nodes):
        if node.target not in COSTS:
            continue
        values = [*_tensors(node.meta["val"]), *(v.meta["val"] for v in node.all_input_nodes)]
        halves = [value for value in values if _is_slow(node, value)]
        converted = sum(elements(value.shape) for value in halves)
        if halves and COSTS[node.target](node).saves(converted, threads):
            changed |= _widen(graph, node)
    return changed


def _is_slow(node: fx.Node, value: Any) -> bool:
    """Return whether a value is a tensor in whose dtype oneDNN does not compute a node."""
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return False
    if (node.target, value.dtype) == (aten.convolution_backward.default, torch.float16):
        return True
    return value.dtype in HALVES and not seams.has_onednn(value.dtype)


def _widen(graph: fx.Graph, node: fx.Node) -> bool:
    """Compute a node in float32. Return False if its results cannot keep their strides."""
    function: Any = node.target
    slow = [operand for operand in node.all_input_nodes if _is_slow(node, operand.meta["val"])]

    def wide(operand: fx.Node) -> Any:
        value = operand.meta["val"]
        return value.to(torch.float32) if operand in slow else value

    args, kwargs = fx.map_arg((node.args, node.kwargs), wide)
    before, after = node.meta["val"], function(*args, **kwargs)
    pairs = zip(_tensors(before), _tensors(after), strict=True)
    if not all(_same_strides(old, new) or _format(old) for old, new in pairs):
        return False
    with graph.inserting_before(node):
        for operand in slow:
            node.replace_input_with(operand, _converted(graph, operand, torch.float32))
    node.meta["val"] = after
    if isinstance(before, torch.Tensor):
        _round(graph, node, before)
        return True
    for part in list(node.users):
        assert part.target is operator.getitem
        old, part.meta["val"] = part.meta["val"], after[part.args[1]]
        _round(graph, part, old)
    return True


def _round(graph: fx.Graph, node: fx.Node, before: torch.Tensor) -> None:
    """Let the readers of a node read it with the dtype and the strides it had before."""
    readers, result = list(node.users), node
    with graph.inserting_after(node):
        if node.meta["val"].dtype != before.dtype:
            result = _converted(graph, node, before.dtype)
    if not _same_strides(result.meta["val"], before):
        with graph.inserting_after(result):
            result = graph.call_function(
                aten.clone.default, (result,), {"memory_format": _format(before)}
            )
        result.meta = {**node.meta, "val": before}
    for reader in readers:
        reader.replace_input_with(node, result)


def _converted(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    converted = graph.call_function(prims.convert_element_type.default, (node, dtype))
    converted.meta = {**node.meta, "val": node.meta["val"].to(dtype)}
    return converted


def _tensors(results: Any) -> list[torch.Tensor]:
    return [result for result in as_tuple(results) if isinstance(result, torch.Tensor)]


def _same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    return same_numbers(a.stride(), b.stride())


def _format(value: torch.Tensor) -> torch.memory_format | None:
    """Return the memory format whose copies have the strides of a tensor, if there is one."""
    for found in (torch.contiguous_format, CHANNELS_LAST.get(value.dim())):
        if found and _same_strides(value, aten.clone.default(value, memory_format=found)):
            return found
    return None


def _matrices(node: fx.Node) -> Cost:
    """The cost of a product of two matrices.

    ATen is slowest if both have contiguous rows, and fastest if both have contiguous columns.
    """
    left, right = _values(node, -2, -1)
    multiplications = elements((*left.shape, right.shape[-1]))
    left_of_columns, right_of_columns = (str(m.stride(0)) == "1" for m in (left, right))
    if right_of_columns or left_of_columns:
        fastest = left_of_columns and not right_of_columns and left.dtype == torch.bfloat16
        return Cost(multiplications, 0.1 if fastest else 0.15)
    return Cost(multiplications, 2)


def _batched(node: fx.Node) -> Cost:
    left, right = _values(node, -2, -1)
    return Cost(elements((*left.shape, right.shape[-1])), 0.8)


def _convolution(node: fx.Node) -> Cost:
    x, weight = _values(node, 0, 1)
    options: Any = node.args[6:]
    transposed, groups = options[0], options[2]
    places = x if transposed else node.meta["val"]
    multiplications = elements((*places.shape, *weight.shape[1:]))
    return Cost(multiplications, 0.15 if transposed else 1.2, CONVOLUTION, groups)


def _convolution_backward(node: fx.Node) -> Cost:
    gradient, x, weight = _values(node, 0, 1, 2)
    options: Any = node.args[7:]
    transposed, groups, wanted = options[0], options[2], options[3]
    places = x if transposed else gradient
    multiplications = elements((*places.shape, *weight.shape[1:])) * sum(wanted[:2])
    with_instructions = seams.has_onednn(x.dtype)  # for other operators than this one
    return Cost(multiplications, 2.5 if with_instructions else 0.15, CONVOLUTION_BACKWARD, groups)


def _attention(node: fx.Node) -> Cost:
    query, key = _values(node, 0, 1)
    multiplications = 2 * elements((*query.shape, key.shape[-2]))
    return Cost(multiplications, 0.1 if query.dtype == torch.float16 else 0)


def _attention_backward(node: fx.Node) -> Cost:
    query, key = _values(node, 1, 2)
    return Cost(5 * elements((*query.shape, key.shape[-2])), 0.2)


def _values(node: fx.Node, *positions: int) -> list[Any]:
    """The fake tensors of operands."""
    operands: Any = node.args
    return [operands[position].meta["val"] for position in positions]


COSTS: dict[Any, Callable[[fx.Node], Cost]] = {
    aten.mm.default: _matrices,
    aten.addmm.default: _matrices,
    aten.bmm.default: _batched,
    aten.baddbmm.default: _batched,
    aten.addbmm.default: _batched,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
}
"""Operator -> what a call of it costs."""
