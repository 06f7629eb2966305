"""Kernels of operators that are written in Python for autograd, used while AOTAutograd traces.

torch has some for the keys `Autograd` and `CompositeImplicitAutograd`, in place of its own kernels
in C++, which eager runs. One that is held back is not there: the trace goes through the kernel in
C++ as eager does.
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
    """Each operator that has such a kernel asks the gate when the trace first comes to it."""
    answers: dict[str, bool] = {}

    def allowed(overload: Any) -> bool:
        """Overloads call one another, so the operator is what is asked for."""
        operator = str(overload.overloadpacket)
        if operator not in answers:
            answers[operator] = gate.allows(f"{UNIT}.{operator}", str(overload))
        return answers[operator]

    with traced_within(lambda: _asking(allowed), log):
        yield


def decomposed() -> list[Any]:
    """The operators that have a kernel in Python for autograd, and one in C++."""
    return [
        operator
        for operator in all_py_loaded_overloads()
        if any(key in operator.py_kernels for key in KEYS) and _has_own_kernel(operator)
    ]


def _has_own_kernel(operator: Any) -> bool:
    """Whether there is a kernel in C++: without one the operator cannot do without Python's."""
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
    """Give an operator other kernels in Python for the length of a block."""
    before = operator.py_kernels
    operator.py_kernels = kernels
    operator._dispatch_cache.clear()
    try:
        yield
    finally:
        operator.py_kernels = before
        operator._dispatch_cache.clear()
