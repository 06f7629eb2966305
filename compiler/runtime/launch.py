"""Loads the source of a wrapper, with its kernels and the objects it names, as a callable."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from tcdebug.compiler import direct_calls, seams
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource
from tcdebug.compiler.errors.exceptions import KernelError

INDEX_OUT_OF_RANGE = 1
DIVISION_BY_ZERO = 2


def raise_status(status: int, *kernels: str) -> NoReturn:
    """Raise the error that the status of a launch stands for.

    In a launch of several kernels, the bits above the lowest eight give the position of the kernel
    that failed. Raises IndexError, as eager does, or KernelError.
    """
    kernel = kernels[0]
    if len(kernels) > 1:
        kernel, status = kernels[status >> 8], status & 255
    if status == INDEX_OUT_OF_RANGE:
        raise IndexError(f"index out of range (found by {kernel})")
    if status == DIVISION_BY_ZERO:
        raise KernelError(f"ZeroDivisionError (found by {kernel})")
    raise KernelError(f"{kernel} ended with status {status}")


def laid_out(
    value: torch.Tensor, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]
) -> torch.Tensor:
    """Return a tensor in the dtype and strides that kernels were written for, copied if necessary.

    ATen's kernels do not always return the strides of their fake counterparts, and hooks on saved
    tensors may change the layout. Raises RuntimeError if the size differs, because then the
    compiled code would be wrong.
    """
    if value.stride() == stride and value.dtype == dtype and value.size() == size:
        return value
    require_size(value, size)
    value = value.to(dtype)
    if all(n <= 1 or a == s for n, a, s in zip(size, value.stride(), stride, strict=True)):
        return value
    once = value[tuple(slice(1 if step == 0 else None) for step in stride)]  # without repetitions
    memory = torch.empty_strided(once.size(), stride, dtype=dtype, device=value.device)
    return memory.copy_(once).expand(size)


def require_size(value: torch.Tensor, size: Sequence[int]) -> None:
    """Raise RuntimeError if an operator returned another size than its fake kernel.

    Kernels that read such a value would be wrong, also those of backward.
    """
    if value.size() != size:
        raise RuntimeError(f"an operator returned size {tuple(value.size())}, not {tuple(size)}")


def load_wrapper(
    source: WrapperSource, kernels: Mapping[str, Any], name: str
) -> Callable[[list[Any]], Sequence[Any]]:
    """Return the wrapper as a callable that takes its arguments in a list, which it empties.

    Its `direct` form, if there is one, is offered to `direct_calls` and loaded on demand.
    """
    namespace: dict[str, Any] = {
        **source.names,
        "empty_strided": torch.empty_strided,
        "empty_strided_cpu": seams.empty_strided_cpu,
        "get_num_threads": torch.get_num_threads,
        "is_grad_enabled": torch.is_grad_enabled,
        "laid_out": laid_out,
        "require_size": require_size,
        "reshaped": torch.Tensor.view,
        "restrided": torch.Tensor.as_strided,
        "raise_status": raise_status,
        "set_grad_enabled": seams.set_grad_enabled,
        **kernels,
    }
    if source.streams:
        namespace |= seams.cuda_functions()

    def load(text: str, filename: str) -> Callable[..., Any]:
        # tracebacks show the wrapper's lines
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        own = dict(namespace)
        exec(compile(text, filename, "exec"), own)
        function: Callable[..., Any] = own["call"]
        return function if source.device is None else on_device(function, source.device)

    wrapper = load(source.text, f"<tcdebug {name}>")
    if source.direct:
        direct_calls.offer(wrapper, lambda: load(source.direct, f"<tcdebug {name} direct>"))
    return wrapper


def on_device(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a wrapper that runs with `device` as the current GPU, which its launches require."""
    current, index = torch.cuda.current_device, device.index

    def run(*args: Any) -> Any:
        if current() == index:
            return function(*args)
        with torch.cuda.device(index):
            return function(*args)

    return run
