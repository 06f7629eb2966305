"""The result of scheduling: kernels, which are groups of loop nodes over the same axes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.graph import Extern, Graph, LoopNode, elements_read
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies


@dataclass(frozen=True)
class Template:
    """The tiling of a matrix product: the tile of a program, and its steps along the sum."""

    rows: int
    columns: int
    depth: int
    """Terms of the sums per step."""
    warps: int
    stages: int
    """Steps whose operands are loaded at the same time (software pipelining)."""
    precision: str = "ieee"
    """The arithmetic on float32 operands: `ieee` or `tf32`."""
    together: int = 8
    """Row tiles that run next to each other, so that they share columns in the cache."""

    @property
    def label(self) -> str:
        """The name of the template in events, such as 128x256x64 w8 s3."""
        tile = f"{self.rows}x{self.columns}x{self.depth}"
        return f"{tile} w{self.warps} s{self.stages}"


@dataclass(frozen=True)
class Kernel:
    """Nodes that run in one loop nest of `outer` around `inner` axes.

    A node over outer and inner axes is computed at every point. A reduction combines over the inner
    axes. A node over the outer axes is computed once per outer point. On a CPU, a node over the
    inner axes alone is computed after all of these (`is_across`). A node reads other nodes of
    the kernel only at the current point, so their values need not go through memory. `stored` names
    the nodes that are read outside the kernel.

    With a `template`, the first node is a matrix product, and the only node over the inner axes.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    nodes: tuple[LoopNode, ...]
    stored: frozenset[str]
    template: Template | None = None
    combo: str = ""
    """The name of the combo kernel that runs it; see `combo_kernels.py`."""

    @property
    def subject(self) -> str:
        """The last node, which identifies the kernel in every run."""
        return self.nodes[-1].name

    @property
    def device(self) -> torch.device:
        """The device of the kernel and of all memory it accesses."""
        return self.nodes[0].out.device

    def is_inner(self, node: LoopNode) -> bool:
        """Return whether a node has a value at every point of the outer and inner axes."""
        return len(node.filled) > len(self.outer) and not self.is_across(node)

    def is_across(self, node: LoopNode) -> bool:
        """Return whether a node has a value for each point of the inner axes alone.

        It is the sum of a column over all outer points, or is computed from such sums.
        """
        return bool(self.outer and self.inner) and not set(node.axes) & set(self.outer)

    def loaded(self) -> set[str]:
        """Return the buffers and parameters that the kernel reads but does not compute."""
        made = {node.name for node in self.nodes}
        return {name for node in self.nodes for name in elements_read(node)} - made


@dataclass(frozen=True)
class Schedule:
    """A graph in the order in which it runs."""

    graph: Graph
    steps: tuple[Kernel | Extern, ...]

    def kernels(self) -> list[Kernel]:
        """Return the kernels in order."""
        return [s for s in self.steps if isinstance(s, Kernel)]


def between_steps(schedule: Schedule) -> Dependencies:
    """Return the dependencies between the steps of a schedule."""
    dependencies = Dependencies(schedule.graph)
    for kernel in schedule.kernels():
        first = dependencies.key_of(kernel.nodes[0].name)
        for node in kernel.nodes[1:]:
            dependencies.merge(first, dependencies.key_of(node.name))
    return dependencies
