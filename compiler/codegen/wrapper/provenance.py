"""Maps kernels back to nodes of the loop IR, their ATen nodes, and the user's lines."""

from __future__ import annotations

from tcdebug.compiler.ir.graph import Extern, Graph, LoopNode, Node, reads
from tcdebug.compiler.schedule.kernel import Kernel, Schedule


def origins(schedule: Schedule, lowered: Graph) -> dict[str, list[list[str]]]:
    """Kernel -> [node, ATen node, operator, FILE:N] of every node that it computes.

    `lowered` is the graph before inlining. An inlined node is listed in the kernels of its readers.
    """
    before = {node.name: node for node in lowered.nodes}
    left = {node.name for node in schedule.graph.nodes}
    return {kernel.name: _of_kernel(kernel, before, left) for kernel in schedule.kernels()}


def _of_kernel(kernel: Kernel, before: dict[str, Node], left: set[str]) -> list[list[str]]:
    found: dict[str, Node | LoopNode] = {}
    stack: list[Node | LoopNode] = list(reversed(kernel.nodes))
    while stack:
        node = stack.pop()
        if node.name in found or isinstance(node, Extern):
            continue
        found[node.name] = node
        read = reads(before.get(node.name, node))
        stack += [before[name] for name in sorted(read) if name in before and name not in left]
    return [_row(node) for node in found.values()]


def _row(node: Node) -> list[str]:
    origin = node.origin
    where = f"{origin.location.filename}:{origin.location.line}" if origin.location else ""
    return [node.name, origin.node, origin.op, where]
