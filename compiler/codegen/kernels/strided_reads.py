"""Finds reads behind a condition of elements that are not neighbours."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.codegen.kernels.flatten import FlatNode
from tcdebug.compiler.ir.expr import Guarded, loads


def reads_apart(node: Guarded, recompute: Mapping[str, FlatNode]) -> bool:
    """Return whether neighbouring points read elements that are not neighbours.

    `recompute` has the nodes that are computed again where they are read. If several such reads
    depend on one comparison of 32 bits, g++ 12 joins them and reads zeros in place of one side.
    """
    left, recomputed = [node.body, node.other], set[str]()
    while left:
        for load in loads(left.pop()):
            steps = (i.coefficient(a) for i in load.index for a in node.condition.axes)
            if any(step is None or step.constant not in (0, 1) for step in steps):
                return True
            computed = None if load.index else recompute.get(load.buffer)
            if computed is not None and computed.name not in recomputed:
                recomputed.add(computed.name)
                left.append(computed.body)
    return False
