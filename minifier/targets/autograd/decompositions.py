"""Python kernels of operators for autograd, which are used while AOTAutograd traces.

torch has some for the keys `Autograd` and `CompositeImplicitAutograd`. They replace torch's C++
kernels, which eager runs. With such a kernel switched off, the trace goes through the C++ kernel,
as eager does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dispatch.python import all_py_loaded_overloads

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.targets.autograd.tracing import traced_within

UNIT = "autograd.decomposition"

KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
"""The dispatch keys under which such kernels are registered."""

Function = Callable[..., Any]


@contextlib.contextmanager
def decompositions(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each operator with such a kernel ask the gate when the trace first reaches it."""
    answers: dict[str, bool] = {}

    def allowed(overload: Any) -> bool:
        """Ask by operator, because its overloads call one another."""
        operator = str(overload.overloadpacket)
        if operator not in answers:
            answers[operator] = gate.allows(f"{UNIT}.{operator}", str(overload))
        return answers[operator]

    with traced_within(lambda: _asking(allowed), log):
        yield


def decomposed() -> list[Any]:
    """Return the operators that have both a Python kernel for autograd and a C++ kernel."""
    return [
        operator
        for operator in all_py_loaded_overloads()
        if any(key in operator.py_kernels for key in KEYS) and _has_own_kernel(operator)
    ]


def _has_own_kernel(operator: Any) -> bool:
    """Return whether there is a C++ kernel. Without one, the operator needs its Python kernel."""
    keys = (*KEYS, DispatchKey.CompositeExplicitAutograd, DispatchKey.CPU, DispatchKey.CUDA)
    has: Callable[[str, Any], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(operator.name(), key) for key in keys)


@contextlib.contextmanager
def _asking(allowed: Callable[[Any], bool]) -> Iterator[None]:
    """Let the kernels ask in this block."""
    with contextlib.ExitStack() as stack:
        for operator in decomposed():
            kernels = {
                key: _gated(operator, kernel, allowed)
                for key, kernel in operator.py_kernels.items()
                if key in KEYS
            }
            stack.enter_context(_kernels(operator, {**operator.py_kernels, **kernels}))
        yield


def _gated(operator: Any, kernel: Function, allowed: Callable[[Any], bool]) -> Function:
    @functools.wraps(kernel)
    def call(*args: Any, **kwargs: Any) -> Any:
        if allowed(operator):
            return kernel(*args, **kwargs)
        others = {k: f for k, f in operator.py_kernels.items() if k not in KEYS}
        with _kernels(operator, others):
            return operator(*args, **kwargs)

    return call


@contextlib.contextmanager
def _kernels(operator: Any, kernels: dict[Any, Any]) -> Iterator[None]:
    """Replace the Python kernels of an operator for the duration of a block."""
    before = operator.py_kernels
    operator.py_kernels = kernels
    operator._dispatch_cache.clear()
    try:
        yield
    finally:
        operator.py_kernels = before
        operator._dispatch_cache.clear()
