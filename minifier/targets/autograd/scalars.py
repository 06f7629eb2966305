"""The pass of AOTAutograd that turns arithmetic on symbolic Python numbers into that on tensors.

If it is switched off, the graph keeps the numbers. torch's backend `aot_eager` computes them in
Python then, and rounds a float later than the tensors would. Inductor compiles only some of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo  # the file of the pass's caller must be imported after it

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

UNIT = "autograd.tensorify_python_scalars"

PASS = Patch(
    "torch._functorch._aot_autograd.graph_compile",
    "tensorify_python_scalars",
    f"{UNIT} cannot be switched off",
    takes=("gm", "shape_env", "fake_mode"),
)
PATCHES = (PASS,)

Function = Callable[..., Any]


@contextlib.contextmanager
def scalars(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let the pass ask once for each graph that has symbolic numbers."""

    def asking(original: Function) -> Function:
        @functools.wraps(original)
        def tensorify(gm: Any, *args: Any, **kwargs: Any) -> None:
            numbers = [
                node.name
                for node in gm.graph.find_nodes(op="placeholder")
                if isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat))
            ]
            if not numbers or gate.allows(UNIT, ", ".join(numbers)):
                original(gm, *args, **kwargs)

        return tensorify

    with patched(PASS, asking, log):
        yield
