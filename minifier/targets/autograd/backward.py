"""The backward pass of AOTAutograd: a compiled graph is one node of autograd.

If it is switched off, autograd records the operators of the traced forward graph instead, as in
eager, and no backward graph is used. Each graph with gradients then runs in plain torch, whatever
its backend is. Code that relies on what eager's autograd records then works, such as second
derivatives, gradients between two results, and hooks of saved tensors.

It is not one of the decisions of a search: with it off, faults of later steps disappear too. It is
off only if the toggles name it, and is tried if no other unit of AOTAutograd is at fault.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo  # the file of the wrapper must be imported after it
from torch import fx
from torch._functorch.partitioners import default_partition

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import ALL, Toggles, belongs
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.layer_names import AUTOGRAD_BACKWARD
from tcdebug.minifier.targets.autograd.tracing import CAPTURE

COMPILE = Patch(
    "torch._functorch.aot_autograd",
    "aot_stage2_compile",
    f"{AUTOGRAD_BACKWARD} cannot be switched off",
    takes=("aot_state", "aot_graph_capture", "partition_fn", "fw_compiler", "bw_compiler"),
)
RUNTIME = Patch(
    "torch._functorch._aot_autograd.runtime_wrappers:RuntimeWrapper",
    "post_compile",
    f"{AUTOGRAD_BACKWARD} cannot be switched off",
    takes=("self", "compiled_fn"),
)
PATCHES = (COMPILE, RUNTIME)

Function = Callable[..., Any]


def backward_off(toggles: Toggles) -> bool:
    """Return whether toggles name the backward pass of AOTAutograd among what is off."""
    return any(name != ALL and belongs(AUTOGRAD_BACKWARD, name) for name in toggles.off)


@contextlib.contextmanager
def recorded(log: EventLog) -> Iterator[None]:
    """Let autograd record the operators of every graph that is compiled in this block."""

    def tracing(original: Function) -> Function:
        @functools.wraps(original)
        def trace(aot_state: Any, *args: Any, **kwargs: Any) -> Any:
            if aot_state.needs_autograd:  # autograd cannot record operators of torch._prims
                config = dataclasses.replace(aot_state.aot_config, decompositions={})
                aot_state.aot_config = config
            return original(aot_state, *args, **kwargs)

        return trace

    def compiling(original: Function) -> Function:
        @functools.wraps(original)
        def compile_graph(
            aot_state: Any, aot_graph_capture: Any, partition_fn: Any, fw_compiler: Any,
            bw_compiler: Any = None, *args: Any, **kwargs: Any,
        ) -> Any:  # fmt: skip
            chosen = partition_fn, fw_compiler, bw_compiler
            if aot_state.needs_autograd:
                chosen = default_partition, _in_plain_torch, _in_plain_torch
            return original(aot_state, aot_graph_capture, *chosen, *args, **kwargs)

        return compile_graph

    def wrapping(original: Function) -> Function:
        @functools.wraps(original)
        def wrap(self: Any, compiled_fn: Any, *args: Any, **kwargs: Any) -> Any:
            node = getattr(compiled_fn, "__self__", None)
            if isinstance(node, type) and issubclass(node, torch.autograd.Function):
                compiled_fn = functools.partial(_without_node, node)
            return original(self, compiled_fn, *args, **kwargs)

        return wrap

    with (
        patched(CAPTURE, tracing, log),
        patched(COMPILE, compiling, log),
        patched(RUNTIME, wrapping, log),
    ):
        yield


def _in_plain_torch(module: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """Return a function that runs a graph operator by operator, and takes one list."""

    def run(args: list[Any]) -> Any:
        return fx.Interpreter(module).boxed_run(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _NoContext:
    """Takes what a node of autograd would keep for backward."""

    def __init__(self) -> None:
        self.constant: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Drop the tensors: the recorded operators keep what they need."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Remember the results without gradients."""
        self.constant = tensors


def _without_node(node: type[torch.autograd.Function], *args: Any) -> Any:
    """Call the forward function of a node of autograd as a plain function."""
    context = _NoContext()
    results = node.forward(context, *args)
    constant = {id(tensor) for tensor in context.constant}
    return tuple(r.detach() if id(r) in constant else r for r in results)
