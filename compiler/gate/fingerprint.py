"""A structural hash of an FX graph. Equal graphs have equal ids in every process."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch
from torch import fx


def graph_id(graph: fx.Graph) -> str:
    """Return the id of a graph: "g-" and twelve hex digits.

    It covers operators, arguments, shapes, strides, dtypes and devices, but not node names.
    """
    number = {node: k for k, node in enumerate(graph.nodes)}
    lines = [_line(node, number) for node in graph.nodes]
    return "g-" + blake2b("\n".join(lines).encode(), digest_size=6).hexdigest()


def _line(node: fx.Node, number: dict[fx.Node, int]) -> str:
    target = "" if node.op in ("placeholder", "output") else _target(node.target)
    value = node.meta.get("val", node.meta.get("example_value"))
    args = fx.node.map_arg(
        (node.args if node.op != "placeholder" else (), dict(node.kwargs)),
        lambda n: f"%{number[n]}",
    )
    return f"{node.op} {target} {args!r} {_meta(value)}"


def _target(target: Any) -> str:
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', None) or target}"


def _meta(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        strides = tuple(value.stride()) if value.layout == torch.strided else ()
        return f"{value.dtype} {tuple(value.shape)} {strides} {value.device}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(_meta(v) for v in value) + ")"
    return str(value) if isinstance(value, torch.SymInt | torch.SymFloat) else type(value).__name__
