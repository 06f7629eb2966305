"""A backend that runs graphs in eager, but computes their floats in float64.

A script that fails with it, and passes in eager and with its control, rejects results that are
rounded correctly.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import needs_own_dtypes


def in_float64(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a callable with the results of the graph in float64, rounded to the dtypes of eager.

    Its results are those of eager if the graph draws random numbers, updates an input, or needs its
    own dtypes.
    """
    if needs_own_dtypes(module):
        return module
    return _computed_again(module, copy.deepcopy(module).double(), _widened)


def in_own_dtypes(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph, run as by `in_float64`, but in the dtypes of eager: its control.

    Both copy what they return, so no result is an ancestor of another one.
    """
    if needs_own_dtypes(module):
        return module
    return _computed_again(module, copy.deepcopy(module), lambda value: value)


def _computed_again(
    module: fx.GraphModule, other: torch.nn.Module, converted: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a callable that takes the floats of a second run, on converted inputs."""

    def call(*values: Any) -> Any:
        state, copies = torch.get_rng_state(), [*map(_copied, values)]
        expected = module(*values)
        drawn = not torch.equal(state, torch.get_rng_state())
        if drawn or not all(map(_unchanged, values, copies)):
            return expected
        try:
            exact = other(*map(converted, values))
        except Exception:
            return expected  # as the docstring says: the graph needs its own dtypes
        return type(expected)(map(_rounded, exact, expected))

    return call


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _unchanged(value: Any, copied: Any) -> bool:
    return not isinstance(value, torch.Tensor) or torch.allclose(
        value, copied, rtol=0.0, atol=0.0, equal_nan=True
    )


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _rounded(exact: Any, expected: Any) -> Any:
    """Return a result in the dtype of eager's; eager's own if the two are not alike."""
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
        return expected
    alike = isinstance(exact, torch.Tensor) and exact.shape == expected.shape
    if not alike:
        return expected
    return exact.to(expected.dtype, copy=expected.dtype != torch.float64)
