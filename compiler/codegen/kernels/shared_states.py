"""Scans that read their value from the state of another one.

The state of a scan for the position of an extreme contains the extreme, which `cummax` returns too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcdebug.compiler.codegen.kernels.flatten import FlatNode

POSITION_OF = {"cummax": "cumargmax", "cummin": "cumargmin"}


def sharing(nodes: Sequence[FlatNode]) -> dict[str, str]:
    """Scan for an extreme -> the first scan for its position, whose state contains it."""
    states = {(n.kind, n.body.key): n.name for n in reversed(nodes) if n.scans}
    found = {n.name: states.get((POSITION_OF.get(n.kind, ""), n.body.key)) for n in nodes}
    return {name: owner for name, owner in found.items() if owner is not None}


def owners_first(nodes: Sequence[FlatNode]) -> tuple[FlatNode, ...]:
    """Return the nodes with each one that shares a state after the one that updates it."""
    owner, by_name = sharing(nodes), {n.name: n for n in nodes}
    ordered: dict[str, FlatNode] = {}
    for node in nodes:
        for name in (owner.get(node.name, node.name), node.name):
            ordered.setdefault(name, by_name[name])
    return tuple(ordered.values())
