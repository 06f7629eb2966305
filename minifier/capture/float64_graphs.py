"""A backend that runs graphs in eager, but computes their floats in float64.

A script that fails with it, and passes in eager, rejects results that are rounded correctly.
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
    wide = copy.deepcopy(module).double()

    def call(*values: Any) -> Any:
        state, copies = torch.get_rng_state(), [*map(_copied, values)]
        expected = module(*values)
        drawn = not torch.equal(state, torch.get_rng_state())
        if drawn or not all(map(_unchanged, values, copies)):
            return expected
        try:
            exact = wide(*map(_widened, values))
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
    return exact.to(expected.dtype) if alike else expected
