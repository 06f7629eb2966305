"""Puts a wrapper's text, its kernels and the objects it names together into a callable."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.wrapper import WrapperSource, laid_out
from tcdebug.compiler.errors import KernelError

INDEX_OUT_OF_RANGE = 1
DIVISION_BY_ZERO = 2


def raise_status(status: int, *kernels: str) -> NoReturn:
    """Raise what the exit status of a launch stands for, as eager would.

    Of several kernels the status says which: its place stands above the lowest eight bits.
    """
    kernel = kernels[0]
    if len(kernels) > 1:
        kernel, status = kernels[status >> 8], status & 255
    if status == INDEX_OUT_OF_RANGE:
        raise IndexError(f"index out of range (found by {kernel})")
    if status == DIVISION_BY_ZERO:
        raise KernelError(f"ZeroDivisionError (found by {kernel})")
    raise KernelError(f"{kernel} ended with status {status}")


def load_wrapper(
    source: WrapperSource, kernels: Mapping[str, Any], name: str
) -> Callable[[list[Any]], Sequence[Any]]:
    """The wrapper as a callable that takes its arguments in a list, which it empties."""
    namespace: dict[str, Any] = {
        **source.names,
        "empty_strided": torch.empty_strided,
        "empty_strided_cpu": seams.empty_strided_cpu,
        "get_num_threads": torch.get_num_threads,
        "laid_out": laid_out,
        "raise_status": raise_status,
        **kernels,
    }
    if source.streams:
        namespace |= seams.cuda_functions()
    filename = f"<tcdebug {name}>"
    # tracebacks show the wrapper's lines
    linecache.cache[filename] = (len(source.text), None, source.text.splitlines(True), filename)
    exec(compile(source.text, filename, "exec"), namespace)
    function: Callable[[list[Any]], Sequence[Any]] = namespace["call"]
    return function if source.device is None else on_device(function, source.device)


def on_device(
    function: Callable[[list[Any]], Sequence[Any]], device: torch.device
) -> Callable[[list[Any]], Sequence[Any]]:
    """A wrapper that runs with a GPU as the current one, which its launches take for granted."""
    current, index = torch.cuda.current_device, device.index

    def run(args: list[Any]) -> Sequence[Any]:
        if current() == index:
            return function(args)
        with torch.cuda.device(index):
            return function(args)

    return run
