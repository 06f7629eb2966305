"""Fusion decisions by pair: which loops inductor's scheduler puts into one kernel."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

PATCHES = (
    Patch(
        "torch._inductor.scheduler:Scheduler",
        "can_fuse",
        "fuse.*, except fuse.inline, cannot be switched off",
        takes=("node1", "node2"),
    ),
)
(CAN_FUSE,) = PATCHES


@contextlib.contextmanager
def fusions(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every pair that all of inductor's rules allow to fuse ask the gate, once per graph.

    A pair for which a rule raises asks too. It is not fused if its unit is off.
    """

    def asking(original: Callable[..., bool]) -> Callable[..., bool]:
        answers: dict[tuple[int, str, str], bool] = {}

        def answer(scheduler: Any, node1: Any, node2: Any) -> bool:
            key = (id(scheduler), node1.get_name(), node2.get_name())
            if key not in answers:
                pair = f"{kernel_name(node1)} | {kernel_name(node2)}"
                answers[key] = gate.allows(_unit(node1, node2), pair)
            return answers[key]

        @functools.wraps(original)
        def can_fuse(self: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> bool:
            try:
                wanted = original(self, node1, node2, *args, **kwargs)
            except Exception:
                if answer(self, node1, node2):
                    raise
                return False
            return wanted and answer(self, node1, node2)

        return can_fuse

    with patched(CAN_FUSE, asking, log):
        yield


def _unit(node1: Any, node2: Any) -> str:
    if node1.is_template():
        return "fuse.epilogue"
    if node2.is_template():
        return "fuse.prologue"
    # do not name the kinds of loops: reducing sizes can turn a reduction into a pointwise loop
    return "fuse.vertical" if node1.get_operation_names() & node2.ancestors else "fuse.horizontal"


def kernel_name(node: Any) -> str:
    """Return the FX nodes that loops compute. Buffer numbers would change with each decision."""
    names: list[str] = []
    for part in node.get_nodes():
        origin = part.node.get_origin_node() if part.node is not None else None
        names.append(origin.name if origin is not None else part.get_name())
    return "+".join(names)
