"""Calls a graph, forward and backward."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch._dynamo import compiled_autograd

from tcdebug.minifier.cases.operators.data import gradients, storages
from tcdebug.minifier.cases.subclasses.parts import cotangents, plain_values

SEED, FURTHER_SEEDS = 1234, (1235, 1236)
FURTHER_CALLS, FURTHER_SECONDS = 9, 2.0
"""After this time there are no more further calls, if there were at least so many."""


def further_calls(most: int) -> Iterator[None]:
    """Yield before each call after the first: at most `most`, and fewer if they take long."""
    ends = time.monotonic() + FURTHER_SECONDS
    for number in range(most):
        if number >= FURTHER_CALLS and time.monotonic() > ends:
            return
        yield


@contextlib.contextmanager
def checkpoints_drawing_again(backend: str) -> Iterator[None]:
    """Make checkpoints draw the same numbers in backward again, if the backend is `eager`.

    Their operator leaves that to the compiler.
    """
    if backend != "eager":
        yield
        return
    kind: Any = type(torch.ops.higher_order.tag_activation_checkpoint)
    original = kind.__call__

    def call(self: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(body, *args, **kwargs)

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = original


def run(
    call: Callable[..., Any],
    values: Sequence[Any],
    report_phase: Callable[[str], None],
    seed: int = SEED,
) -> dict[str, list[Any]]:
    """Return outputs, the inputs afterwards, and gradients if any are required."""
    wanted = leaves(values)
    before = storages(wanted)
    torch.manual_seed(seed)
    report_phase("forward")
    outputs = flatten(call(*values))
    synchronize()
    results = {"forward": plain_values([detached(value) for value in (*outputs, *values)])}
    roots = [o for o in outputs if torch.is_tensor(o) and o.requires_grad]
    if wanted and roots and torch.is_grad_enabled():
        report_phase("backward")
        found = gradients(roots, wanted, cotangents(roots), before)
        results["backward"] = plain_values(found)
        synchronize()
    return results


def widened(values: Sequence[Any]) -> list[Any]:
    """Return values in which tensors of floats are float64."""
    return [
        _double(v.detach()).requires_grad_(v.requires_grad)
        if torch.is_tensor(v) and v.is_floating_point()
        else v
        for v in values
    ]


def _double(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64. Elements that share memory still do, for a graph that writes."""
    sizes = value.size() if value.layout == torch.strided else ()
    strides = value.stride() if sizes else ()
    span = 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    if not sizes or span >= value.numel() or 0 in strides:
        return value.double()
    wide = torch.empty_strided(sizes, strides, dtype=torch.float64, device=value.device)
    return wide.copy_(value)


def leave_compiled_autograd() -> None:
    """Compile no backward pass from now on, though a script does and may be in one."""
    compiled_autograd.in_compiled_autograd_region = False
    compiled_autograd.reset()


def leave_script() -> None:
    """Leave what a script set up for itself: compiled autograd, its time limits, and its folder.

    torch looks for files in the current folder, which the script may have removed.
    """
    leave_compiled_autograd()
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0.0)
    try:
        os.getcwd()
    except FileNotFoundError:
        os.chdir(os.sep)


def compile_on_this_thread() -> None:
    """Compile without inductor's threads. After a fork, the child waits for them forever."""
    config = sys.modules.get("torch._inductor.config")
    if config is not None:
        config.compile_threads = 1  # type: ignore[attr-defined] # set when the module is imported


def detached(value: Any) -> Any:
    """Return a tensor without its history. Other values do not change."""
    return value.detach() if torch.is_tensor(value) else value


def leaves(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the autograd leaves behind values, without duplicates: the targets of gradients."""
    found = {}
    for value in values:
        if torch.is_tensor(value) and value.requires_grad:
            node: Any = value.grad_fn
            while node is not None and not hasattr(node, "variable"):
                node = next((n for n, _ in node.next_functions if n is not None), None)
            leaf = value if node is None else node.variable
            found[id(leaf)] = leaf
    return list(found.values())


def flatten(value: Any) -> list[Any]:
    """Return the leaves of nested lists, tuples and dictionaries."""
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in flatten(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in flatten(part)]
    return [value]


def synchronize() -> None:
    """Wait for the kernels of a GPU, so that their errors are raised here."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not annotated
        torch.cuda.synchronize()
