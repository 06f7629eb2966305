"""Bugs planted in stock inductor, and in a script's additions to it, for a bisection to find.

As in `planted`, a plant breaks one unit for graphs that contain tanh, by an exception, a wrong
number, a segfault or a hang. The script that is bisected patches it in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from planted import misbehave
from torch._inductor import compile_fx, config, decomposition, lowering
from torch._inductor.codegen import cpp
from torch._inductor.scheduler import Scheduler

aten = torch.ops.aten


def plant_pass(kind: str) -> None:
    """A pass of the script replaces tanh by sin."""

    def takes_tanh_for_sin(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is aten.tanh.default:
                misbehave(kind)
                node.target = aten.sin.default

    config.post_grad_custom_post_pass = takes_tanh_for_sin


def plant_decomposition(kind: str) -> None:
    """The decomposition of softplus is wrong."""

    def softplus(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
        misbehave(kind)
        return torch.log1p(torch.exp(x)) * 1.5

    decomposition.decompositions[aten.softplus.default] = softplus
    decomposition.fast_random_decomps.cache_clear()


def plant_lowering(kind: str) -> None:
    """The lowering of tanh computes sin."""

    def tanh(x: Any) -> Any:
        misbehave(kind)
        return lowering.lowerings[aten.sin.default](x)

    lowering.register_lowering(aten.tanh.default, type_promotion_kind=None)(tanh)


def plant_fusion(kind: str) -> None:
    """If a sum over tanh is fused with a product that reads it, the kernel's relu is wrong."""
    fuse, write = Scheduler.fuse_two_nodes, cpp.CppScheduling.codegen_node

    def fuse_two_nodes(self: Any, node1: Any, node2: Any, fused: Any) -> Any:
        over_tanh = aten.tanh.default in computed(node1) and aten.sum.dim_IntList in stored(node1)
        wrong = over_tanh and stored(node2) == {aten.mul.Tensor}
        if wrong:
            misbehave(kind)
        both = fuse(self, node1, node2, fused)
        both.planted = wrong or any(getattr(n, "planted", False) for n in (node1, node2))
        return both

    def codegen_node(self: Any, node: Any) -> Any:
        bug = "accuracy" if getattr(node, "planted", False) else None
        with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": bug}):
            return write(self, node)

    Scheduler.fuse_two_nodes = fuse_two_nodes  # type: ignore[method-assign] # the plant
    cpp.CppScheduling.codegen_node = codegen_node  # type: ignore[method-assign] # the plant


def computed(node: Any) -> set[Any]:
    """The operators that loops compute, including nested ones."""
    parts = [part.node for part in node.get_nodes() if part.node is not None]
    return {origin.target for part in parts for origin in part.origins}


def stored(node: Any) -> set[Any]:
    """The operators whose results loops store."""
    origins = [p.node.get_origin_node() for p in node.get_nodes() if p.node is not None]
    return {origin.target for origin in origins if origin is not None}


def plant_vectorization(kind: str) -> None:
    """Vectorised kernels compute another function for tanh."""

    def tanh(x: Any) -> str:
        misbehave(kind)
        return f"{x}.sin()"

    cpp.CppVecOverrides.tanh = staticmethod(tanh)  # type: ignore[method-assign] # the plant


def plant_partition(kind: str) -> None:
    """The partition that recomputes fails on graphs that contain tanh."""
    original = compile_fx.min_cut_rematerialization_partition

    def partition(joint: Any, *args: Any, **kwargs: Any) -> Any:
        if any(n.target is aten.tanh.default for n in joint.graph.nodes):
            misbehave(kind)
            for node in joint.graph.nodes:
                if node.target is aten.tanh.default:
                    node.target = aten.sin.default
        return original(joint, *args, **kwargs)

    compile_fx.min_cut_rematerialization_partition = partition


PLANTS: dict[str, Callable[[str], None]] = {
    "decompose.aten.softplus.default": plant_decomposition,
    "partition.recompute": plant_partition,
    "postgrad.post_grad_custom_post_pass": plant_pass,
    "lower.aten.tanh.default": plant_lowering,
    "fuse.vertical": plant_fusion,
    "codegen.vectorize": plant_vectorization,
}
"""The plant of each unit."""
