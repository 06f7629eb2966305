"""What scheduling makes: kernels, each a set of loop nodes over the same axes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.graph import Extern, Graph, LoopNode, elements_read
from tcdebug.compiler.ir.index import Axis


@dataclass(frozen=True)
class Template:
    """How a product of matrices is cut: the tile of a program, and its steps along the sums."""

    rows: int
    columns: int
    depth: int
    """Elements of the sums in a step."""
    warps: int
    stages: int
    """Steps whose operands are on their way at once."""
    precision: str = "ieee"
    """Of float32 operands: `ieee` or `tf32`."""
    together: int = 8
    """Tiles of rows that run beside each other, so that they find the columns in the cache."""

    @property
    def label(self) -> str:
        """What names it in events: 128x256x64 w8 s3."""
        tile = f"{self.rows}x{self.columns}x{self.depth}"
        return f"{tile} w{self.warps} s{self.stages}"


@dataclass(frozen=True)
class Kernel:
    """Nodes that run in one loop nest: `outer` around `inner`.

    A node over outer+inner is computed for every point, a reduction combines over inner, a node
    over outer alone is computed once for each outer point. A node reads another of the kernel at
    the very element that the loops stand at, so the value need not go through memory; what
    others need is in `stored`.

    With a `template` the first node is a product of matrices, and the only one over inner.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    nodes: tuple[LoopNode, ...]
    stored: frozenset[str]
    template: Template | None = None

    @property
    def subject(self) -> str:
        """What names the kernel in every run: its last node."""
        return self.nodes[-1].name

    @property
    def device(self) -> torch.device:
        """Where it runs: all that it touches is there."""
        return self.nodes[0].out.device

    def is_inner(self, node: LoopNode) -> bool:
        """Whether a node has a value for every point of outer and inner."""
        return len(node.filled) > len(self.outer)

    def loaded(self) -> set[str]:
        """Buffers and parameters that the kernel reads and does not itself make."""
        made = {node.name for node in self.nodes}
        return {name for node in self.nodes for name in elements_read(node)} - made


@dataclass(frozen=True)
class Schedule:
    """A graph in the order in which it runs."""

    graph: Graph
    steps: tuple[Kernel | Extern, ...]

    def kernels(self) -> list[Kernel]:
        """The kernels in order."""
        return [s for s in self.steps if isinstance(s, Kernel)]
