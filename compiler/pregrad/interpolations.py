"""Finds calls of `interpolate` on CPUs with known sizes, and replaces those that a pass accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.pregrad.node_values import example_tensor

NAMES = ("input", "size", "scale_factor", "mode", "align_corners")


@dataclass(frozen=True)
class InterpolateCall:
    """A call of `interpolate`. `x` and `y` are examples of its input and result."""

    source: fx.Node
    mode: str
    x: torch.Tensor
    y: torch.Tensor
    aligned: bool
    scales: list[float | None]
    """The factor by which each dimension is scaled, where the program gives one."""

    @property
    def size(self) -> list[int]:
        """The sizes of the dimensions that are interpolated."""
        return list(self.y.shape[2:])


def replace_interpolations(
    graph: fx.Graph,
    replacement: Callable[..., torch.Tensor],
    arguments: Callable[[InterpolateCall], tuple[Any, ...] | None],
) -> bool:
    """Call `replacement` instead of `interpolate` wherever `arguments` returns its arguments."""
    changed = False
    for node in list(graph.nodes):
        if node.target is not torch.nn.functional.interpolate:
            continue
        call = _call(node)
        given = None if call is None else arguments(call)
        if given is None:
            continue
        with graph.inserting_before(node):
            replaced = graph.call_function(replacement, given)
        replaced.meta = dict(node.meta)
        node.replace_all_uses_with(replaced)
        graph.erase_node(node)
        changed = True
    return changed


def _call(node: fx.Node) -> InterpolateCall | None:
    """Return a call on a CPU with known sizes and no other arguments than NAMES, otherwise None."""
    given: dict[str, Any] = dict(zip(NAMES, node.args, strict=False)) | dict(node.kwargs)
    extra = set(given) - set(NAMES)
    if len(node.args) > len(NAMES) or any(given[name] for name in extra):
        return None
    source = given.get("input")
    x, y = (example_tensor(n) for n in (source, node))
    if not isinstance(source, fx.Node) or x is None or y is None or x.device.type != "cpu":
        return None
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return None
    factor = given.get("scale_factor")
    factors = list(factor) if isinstance(factor, tuple | list) else [factor] * (x.dim() - 2)
    if not all(f is None or isinstance(f, int | float) for f in factors):
        return None
    scales = [None if f is None else float(f) for f in factors]
    aligned = bool(given.get("align_corners"))
    return InterpolateCall(source, given.get("mode", "nearest"), x, y, aligned, scales)
