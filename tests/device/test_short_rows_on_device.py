"""Reductions and sorts of short rows on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def repeated(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Few different values, among them infinities and, for floats, NaN."""
    x = (torch.randint(-3, 3, size, device="cuda") * 2).to(dtype)
    if dtype.is_floating_point:
        x[1], x[2, ::2], x[3, 1] = float("nan"), float("-inf"), float("inf")
    return x


def assert_as_eager(function: Callable[..., Any], x: torch.Tensor, *, exact: bool = False) -> None:
    """Check results, and what is written to x."""
    torch._dynamo.reset()
    mine, theirs = x.clone(), x.clone()
    actual = torch.compile(function, backend="tcdebug", dynamic=False)(mine)
    close = {"rtol": 0, "atol": 0} if exact else {}
    torch.testing.assert_close(actual, function(theirs), equal_nan=True, **close)
    torch.testing.assert_close(mine, theirs, equal_nan=True, **close)


SORTS: dict[str, Callable[..., Any]] = {
    "ascending": lambda x: torch.sort(x, dim=-1, stable=True),
    "descending": lambda x: torch.sort(x, dim=-1, descending=True, stable=True),
    "of the first axis": lambda x: torch.sort(x, dim=0, stable=True),
    "gathered": lambda x: x.gather(-1, torch.sort(x, dim=-1, stable=True)[1]) + 1,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", SORTS)
def test_sorts_of_short_rows_give_the_places_of_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for length in (5, 56, 128):
        x = repeated(length, length, dtype=dtype)
        assert_as_eager(SORTS[name], x, exact=True)


SHORT: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: x.softmax(1),
    "extremes": lambda x: (x.argmax(1), x.argmin(1), (x + 0.25).max(1), x.amin(1) * 2),
    "sums": lambda x: (x.clamp(-9, 9).sum(1), x.clamp(-9, 9).var(1), (x > 0).sum(1)),
    "in place": lambda x: x.copy_(x.clamp(-9, 9) - x.clamp(-9, 9).mean(1, keepdim=True)),
}


@pytest.mark.parametrize("length", [2, 5, 8])
@pytest.mark.parametrize("name", SHORT)
def test_reductions_of_short_rows_are_those_of_eager(name: str, length: int) -> None:
    torch.manual_seed(0)
    for x in (repeated(700, length, 33), repeated(300, length), repeated(9, length).bfloat16()):
        assert_as_eager(SHORT[name], x)
