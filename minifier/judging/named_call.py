"""Finds the call of a captured graph that an exception is about.

Passes, decompositions and lowerings raise while a frame of the compiler holds the node at which it
works. Where that node comes from is only a guess at the cause: another call may have led to it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from torch import fx

from tcdebug.minifier.cases.exception_identity import causes

BACKWARD = "_engine_run_backward"
"""The function of torch that runs backward. Its callers hold the last node of forward."""
OF_THE_STEP = ("node", "n")
"""Names that compilers give to the node at which they work. Others may be its operands."""


def named_call(error: BaseException, calls: Iterable[fx.Node]) -> str:
    """Return which of `calls` the innermost frame with a node works at; empty if none does."""
    names = {node.name for node in calls}
    for cause in reversed(list(causes(error))):
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        for frame in reversed(frames):
            if frame.f_code.co_name == BACKWARD:
                return ""
            for node in _nodes(frame.f_locals):
                if name := next((n for n in _origins(node) if n in names), ""):
                    return name
    return ""


def _nodes(variables: dict[str, Any]) -> list[fx.Node]:
    """Return the nodes that a frame holds, the one at which it works first."""
    held = [(name, v) for name, v in variables.items() if isinstance(v, fx.Node)]
    return [node for _, node in sorted(held, key=lambda pair: pair[0] not in OF_THE_STEP)]


def _origins(node: fx.Node) -> Iterator[str]:
    """Yield the names of the nodes from which a node was made, the original first."""
    sources = node.meta.get("from_node", ())
    names: list[str] = []
    while sources:
        names.append(sources[0].name)
        sources = sources[0].from_node
    yield from reversed(names or [node.name])
