"""Functions of C's library have the same bits in every loop, however g++ divides it."""

from __future__ import annotations

import pytest
import torch
from judge import compiled
from torch import Tensor

DTYPES = (torch.float32, torch.float64)


def functions(x: Tensor) -> list[Tensor]:
    """One result of each function of the vector math library."""
    y, small = x.abs() + 0.3, x.tanh() * 0.9
    return [
        *(x.sin(), x.cos(), x.tan(), x.atan(), x.sinh(), x.cosh(), x.tanh(), x.asinh()),
        *(x.exp(), x.exp2(), x.expm1(), x.erf(), x.erfc()),
        *(y.log(), y.log2(), y.log10(), y.log1p(), (y + 1).acosh(), y.pow(x)),
        *(small.asin(), small.acos(), small.atanh(), torch.atan2(x, y), torch.hypot(x, y)),
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_has_one_value_in_rows_of_any_length(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, dtype=dtype)
    whole = compiled(functions)(x)
    for length in (1, 2, 3, 6, 11, 17, 31):
        torch._dynamo.reset()
        part = compiled(functions, dynamic=False)(x[:length])
        for expected, found in zip(whole, part, strict=True):
            assert torch.equal(expected[:length], found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [7, 64, 100])
def test_the_place_of_an_extreme_that_is_computed_again_is_found(
    columns: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    x = torch.randn(2000, 2 * columns, dtype=dtype)[:, ::2]
    found = compiled(lambda x: x.sin().argmax(-1))(x)
    assert int(found.max()) < columns
    assert torch.allclose(x.sin().gather(1, found[:, None])[:, 0], x.sin().amax(-1))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [7, 64, 100])
def test_the_gradient_of_an_extreme_reaches_one_element(
    columns: int, dtype: torch.dtype, dim: int
) -> None:
    """Backward computes the elements again, and looks for those that equal the extreme."""
    torch.manual_seed(1)
    x = torch.randn(2000, 2 * columns, dtype=dtype, requires_grad=True)
    compiled(lambda x: x[:, ::2].sin().amax(dim))(x).sum().backward()
    assert x.grad is not None
    counts = (x.grad[:, ::2] != 0).sum(dim)
    assert not x.grad.isnan().any()
    assert int(counts.min()) >= 1
