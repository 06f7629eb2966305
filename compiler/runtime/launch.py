"""Puts a wrapper's text, its kernels and the objects it names together into a callable."""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from tcdebug.compiler.codegen.source import KernelCall
from tcdebug.compiler.codegen.wrapper import WrapperSource, laid_out
from tcdebug.compiler.errors import KernelError

INDEX_OUT_OF_RANGE = 1
DIVISION_BY_ZERO = 2


def raise_status(status: int, kernel: str) -> NoReturn:
    """Raise what a kernel's exit status stands for, as eager would."""
    if status == INDEX_OUT_OF_RANGE:
        raise IndexError(f"index out of range (found by {kernel})")
    if status == DIVISION_BY_ZERO:
        raise KernelError(f"ZeroDivisionError (found by {kernel})")
    raise KernelError(f"{kernel} ended with status {status}")


def kernel_function(library: ctypes.CDLL, call: KernelCall) -> Callable[..., int]:
    """A kernel as a Python callable of addresses, sizes and numbers."""
    function = library[call.kernel.name]
    pointers = len(call.loads) + len(call.stores)
    function.argtypes = [
        *[ctypes.c_void_p] * pointers,
        *[ctypes.c_int64] * len(call.symbols),
        *[ctypes.c_double] * len(call.parameters),
        ctypes.c_int,
    ]
    function.restype = ctypes.c_int
    return function


def load_wrapper(
    source: WrapperSource,
    library: ctypes.CDLL | None,
    calls: Mapping[str, KernelCall],
    name: str,
) -> Callable[[list[Any]], Sequence[Any]]:
    """The wrapper as a callable that takes its arguments in a list, which it empties."""
    namespace: dict[str, Any] = {
        **source.names,
        "empty_strided": torch.empty_strided,
        "get_num_threads": torch.get_num_threads,
        "laid_out": laid_out,
        "raise_status": raise_status,
    }
    if library is not None:
        for kernel, call in calls.items():
            namespace[f"run_{kernel}"] = kernel_function(library, call)
    filename = f"<tcdebug {name}>"
    # tracebacks show the wrapper's lines
    linecache.cache[filename] = (len(source.text), None, source.text.splitlines(True), filename)
    exec(compile(source.text, filename, "exec"), namespace)
    function: Callable[[list[Any]], Sequence[Any]] = namespace["call"]
    return function
