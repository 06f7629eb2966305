"""Whether a program differentiates a graph again that its first backward has freed.

Autograd frees what the nodes of a graph have saved. A node that saves nothing can run again, so
eager accepts such a program by chance. All operations of a compiled graph are one node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import patched
from tcdebug.minifier.targets.interception import BACKWARD, GRAD

FREED = "Trying to backward through the graph a second time"
"""What the message of autograd begins with."""


@dataclass
class FreedNodes:
    """The nodes that earlier calls of backward have freed, and whether a later call reached one."""

    again: bool = False
    nodes: set[Any] = field(default_factory=set)

    def differentiate(self, outputs: Any, keep: bool) -> None:
        """Record that outputs are differentiated; `keep` leaves the graph as it is."""
        roots = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        reached = set(_reached([r.grad_fn for r in roots if isinstance(r, torch.Tensor)]))
        self.again = self.again or not self.nodes.isdisjoint(reached)
        if not keep:
            self.nodes |= reached


def _reached(nodes: list[Any]) -> Iterator[Any]:
    """Return nodes and all that come after them in backward, but no leaves, which stay."""
    found = set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in found and not hasattr(node, "variable"):
            found.add(node)
            yield node
            nodes += [after for after, _ in node.next_functions]


@contextlib.contextmanager
def watching_backward() -> Iterator[FreedNodes]:
    """Record what is differentiated inside the block, in all threads."""
    freed = FreedNodes()

    def watched_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
        def watched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            freed.differentiate(tensors, _keeps(args[1:], kwargs))
            return backward(tensors, *args, **kwargs)

        return watched

    def watched_grad(grad: Callable[..., Any]) -> Callable[..., Any]:
        def watched(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            freed.differentiate(outputs, _keeps(args[1:], kwargs))
            return grad(outputs, inputs, *args, **kwargs)

        return watched

    log = EventLog(None)
    with patched(BACKWARD, watched_backward, log), patched(GRAD, watched_grad, log):
        yield freed


def _keeps(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the graph is kept. `args` are what follows the gradients of the outputs."""
    given = dict(zip(("retain_graph", "create_graph"), args, strict=False)) | kwargs
    keep = given.get("retain_graph")
    return bool(given.get("create_graph") if keep is None else keep)
