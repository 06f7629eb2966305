"""Lets tensors that forward saves only for backward have different strides from eager's.

AOTAutograd compiles backward for the strides that forward's compiler reports. The partition counts
the results that others read. `free_strides` lets passes change the strides of the rest and reports
them. `take_strides` writes them into backward's graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.effects import may_share_memory, overlaps
from tcdebug.compiler.passes.replacement import FIXED_STRIDES, STRIDE_SENSITIVE, same_numbers
from tcdebug.compiler.passes.strides import restride

aten = torch.ops.aten
VISIBLE_RESULTS = "visible_results"
"""Key in the meta of forward's output: how many results are not only saved for backward."""


def give_elements_memory(joint: fx.GraphModule) -> None:
    """Give results the strides that lowering gives them: no two elements share memory.

    torch 2.11 traces `slice_scatter` of an expanded tensor with the strides of that. Backward would
    read such a result, if it is saved, as if it were expanded.
    """
    for node in list(joint.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not seams.is_strided(value):
            continue
        if node.op == "call_function" and overlaps(value) and not may_share_memory(node):
            dense = aten.clone.default(value, memory_format=torch.contiguous_format)
            restride(joint.graph, node, dense, results=True)


def count_visible(forward: fx.GraphModule, backward: fx.GraphModule, visible: int) -> None:
    """Record how many of forward's results, which come first, are read by others than backward.

    Records nothing if the result of an operator in backward depends on the memory layout.
    """
    if not any(node.target in STRIDE_SENSITIVE for node in backward.graph.nodes):
        forward.graph.output_node().meta[VISIBLE_RESULTS] = visible


@contextmanager
def free_strides(forward: fx.GraphModule) -> Iterator[None]:
    """While the block runs, passes may change the strides of tensors that are only saved.

    Reports the new strides to AOTAutograd at the end.
    """
    output = forward.graph.output_node()
    visible = output.meta.get(VISIBLE_RESULTS)
    if visible is None or not seams.takes_strides(visible):
        yield
        return
    output.meta[FIXED_STRIDES] = visible
    before = _results(forward)
    yield
    pairs = zip(before, _results(forward), strict=True)
    changed = [_numbers(new) if _moved(old, new) else None for old, new in pairs]
    seams.report_strides(changed if any(changed) else [])


def take_strides(backward: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Give the inputs of backward's graph the strides of AOTAutograd's fake inputs."""
    graph = backward.graph
    for node, given in zip(graph.find_nodes(op="placeholder"), inputs, strict=True):
        if _moved(node.meta.get("val"), given):
            restride(graph, node, given, results=False)


def _results(module: fx.GraphModule) -> list[Any]:
    given: Any = module.graph.output_node().args[0]
    return [r.meta.get("val") if isinstance(r, fx.Node) else None for r in given]


def _moved(old: Any, new: Any) -> bool:
    """Return whether `new` has different strides from `old`, and all of its strides are known."""
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return False
    if not seams.is_strided(old) or not seams.is_strided(new):
        return False
    return _numbers(new) is not None and not same_numbers(old.stride(), new.stride())


def _numbers(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of a tensor, None where one is symbolic."""
    stride = tuple(value.stride())
    return stride if all(isinstance(n, int) for n in stride) else None
