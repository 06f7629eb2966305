"""Bugs planted in stock inductor and in what a script adds to it: what a bisection has to find.

As `planted`: a plant breaks one unit for graphs that hold tanh, by an exception, a wrong number, a
segfault or a hang, and is patched in by the script that is bisected.
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
    """A pass of the script's takes tanh for sin."""

    def takes_tanh_for_sin(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is aten.tanh.default:
                misbehave(kind)
                node.target = aten.sin.default

    config.post_grad_custom_post_pass = takes_tanh_for_sin


def plant_decomposition(kind: str) -> None:
    """Softplus is decomposed into something else."""

    def softplus(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
        misbehave(kind)
        return torch.log1p(torch.exp(x)) * 1.5

    decomposition.decompositions[aten.softplus.default] = softplus
    decomposition.fast_random_decomps.cache_clear()


def plant_lowering(kind: str) -> None:
    """The lowering of tanh gives its sine."""

    def tanh(x: Any) -> Any:
        misbehave(kind)
        return lowering.lowerings[aten.sin.default](x)

    lowering.register_lowering(aten.tanh.default, type_promotion_kind=None)(tanh)


def plant_fusion(kind: str) -> None:
    """Where a reduction runs in one kernel with tanh, the kernel's relu is not one."""
    original = Scheduler.fuse_two_nodes

    def fuse_two_nodes(self: Any, node1: Any, node2: Any, fused: Any) -> Any:
        both = original(self, node1, node2, fused)
        origins = {
            origin.target
            for node in both.get_nodes()
            for origin in (node.node.origins if node.node is not None else ())
        }
        if aten.tanh.default in origins and aten.sum.dim_IntList in origins:
            misbehave(kind)
            WRONG_KERNELS.append(both.get_name())
        return both

    original_codegen = cpp.CppScheduling.codegen_node

    def codegen_node(self: Any, node: Any) -> Any:
        bug = "accuracy" if node.get_name() in WRONG_KERNELS else None
        with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": bug}):
            return original_codegen(self, node)

    Scheduler.fuse_two_nodes = fuse_two_nodes  # type: ignore[method-assign] # the plant
    cpp.CppScheduling.codegen_node = codegen_node  # type: ignore[method-assign] # the plant


WRONG_KERNELS: list[str] = []


def plant_vectorization(kind: str) -> None:
    """tanh is another function in vectorised kernels."""

    def tanh(x: Any) -> str:
        misbehave(kind)
        return f"{x}.sin()"

    cpp.CppVecOverrides.tanh = staticmethod(tanh)  # type: ignore[method-assign] # the plant


def plant_partition(kind: str) -> None:
    """The partition that recomputes fails on graphs that hold tanh."""
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
    "fuse.reduction": plant_fusion,
    "codegen.vectorize": plant_vectorization,
}
"""Unit -> what breaks it."""
