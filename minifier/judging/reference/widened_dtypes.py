"""Runs a graph in float64 although it has casts to other floats and makes tensors of them.

Such a graph often raises in float64 because of two dtypes in one operator, as a model in bfloat16
whose norm computes in float32. Without a float64 run, tolerance of eager alone would decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from tcdebug.minifier.cases.operators.autocast import ENTER

Result = TypeVar("Result")

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
CASTS = {
    "half": torch.float64,
    "bfloat16": torch.float64,
    "float": torch.float64,
    "chalf": torch.complex128,
    "cfloat": torch.complex128,
}
"""The methods of tensors that cast to a dtype, and to which one they cast instead."""


def in_float64(graph: Callable[..., Any], run: Callable[[Callable[..., Any]], Result]) -> Result:
    """Return what `run` makes of a graph; if it raises, of one with widened dtypes.

    `run` calls the graph with inputs in float64. Raises what it raises the second time.
    """
    try:
        return run(graph)
    except Exception:
        return run(partial(_with_dtypes_widened, graph))


def _with_dtypes_widened(graph: Callable[..., Any], *args: Any) -> Any:
    with _dtypes_widened():
        return graph(*args)


@contextlib.contextmanager
def weights_in_float64(module: torch.nn.Module) -> Iterator[None]:
    """Widen the floats of a module in this block."""
    values = [v for v in (*module.buffers(), *module.parameters()) if v.is_floating_point()]
    narrow = [(value, value.data) for value in values]
    try:
        for value in values:
            value.data = value.data.double()
        yield
    finally:
        for value, data in narrow:
            value.data = data


@contextlib.contextmanager
def _dtypes_widened() -> Iterator[None]:
    """Use float64 in this block where a program names another float, or none."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _DtypesWidened():
            yield
    finally:
        torch.set_default_dtype(default)


class _DtypesWidened(TorchFunctionMode):
    """Replaces dtypes in calls of torch."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == ENTER:  # autocast casts no float64, whatever its own dtype
            return func(*args, **named)
        if name in CASTS and isinstance(args[0], torch.Tensor):
            return args[0].to(CASTS[name], **named)
        return func(*map(_wider, args), **{name: _wider(value) for name, value in named.items()})


def _wider(value: Any) -> Any:
    return WIDER.get(value, value) if isinstance(value, torch.dtype) else value
