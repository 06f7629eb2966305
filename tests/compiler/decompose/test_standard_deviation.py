"""Standard deviations and variances, also of numbers whose squares overflow float32."""

from __future__ import annotations

import pytest
import torch
from judge import compiled

CASES = {
    "squares_beyond_float32": torch.tensor([[-0.0, 1e30], [3e38, -1e25]]),
    "small": torch.tensor([[1e-30, 1e-25], [0.0, 3e-28]]),
    "half": torch.tensor([[-0.0, 60000.0], [3.0, -1e-3]]).half(),
    "bfloat16": torch.tensor([[-0.0, 1e38], [3e38, -2.0]]).bfloat16(),
    "double": torch.tensor([[1.0, 1e200], [3.0, -1.0]], dtype=torch.float64),
    "tiny": torch.tensor([[1e-44, 0.0], [3e-44, 2e-40]]),
    "rows_of_different_sizes": torch.randn(3, 5) * torch.tensor([[1e35], [1.0], [1e-38]]),
    "one_row": torch.ones(1, 3),
    "empty": torch.ones(0, 3),
}


@pytest.mark.filterwarnings("ignore:std")  # degrees of freedom, of an empty tensor
@pytest.mark.parametrize("name", CASES)
def test_a_standard_deviation_is_exact_over_the_whole_range(name: str) -> None:
    x = CASES[name]
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.std_mean(x, 0, correction=0),
            *torch.std_mean(x),
            x.std(-1, keepdim=True),
            x.std(),
        )

    for made, wanted in zip(compiled(function)(x), function(x), strict=True):
        torch.testing.assert_close(made, wanted, equal_nan=True, rtol=1e-5, atol=0)


HALVES = {
    "largest": torch.full((7, 3), 3.3e38).bfloat16(),
    "largest_of_both_signs": torch.tensor([[3e38], [-3e38], [1e38]]).bfloat16(),
    "subnormal": torch.tensor([[1e-39], [-3e-39], [2e-40], [5e-39], [1e-40]]).bfloat16(),
    "equal": torch.full((4095, 2), 0.1).bfloat16(),
    "equal_in_float16": torch.full((37, 2), 1e-3).half(),
    "largest_in_float16": torch.tensor([[65504.0], [-65504.0], [65504.0]]).half(),
    "offset": (torch.arange(300).reshape(100, 3) % 7 + 1000).half(),
    "beyond_few": torch.full((4097, 2), 0.1).bfloat16(),
}


@pytest.mark.parametrize("name", HALVES)
def test_moments_of_half_types_are_those_of_their_values(name: str) -> None:
    """Their sums are computed in float32 if there are few: equal numbers have no variance."""
    x = HALVES[name]
    torch._dynamo.reset()
    for made, wanted in zip(
        compiled(lambda x: torch.var_mean(x, 0))(x),
        torch.var_mean(x.double(), 0),
        strict=True,
    ):
        torch.testing.assert_close(made, wanted.to(x.dtype), rtol=2**-7, atol=0)


def test_equal_numbers_have_no_variance() -> None:
    x = torch.cat([torch.full((n, 1), v) for n in (3, 5, 7, 4097) for v in (0.1, 1e30)], 0)
    torch._dynamo.reset()
    once = compiled(lambda *parts: [torch.var(part, 0) for part in parts])
    parts = x.split([n for n in (3, 5, 7, 4097) for _ in range(2)])
    assert [variance.item() for variance in once(*parts)] == [0.0] * 8


def test_equal_numbers_have_no_deviation() -> None:
    x = torch.tensor([0.1, 1e30, 3e-39, -7.7]).expand(37, 4)
    torch._dynamo.reset()
    assert compiled(lambda x: x.std(0))(x).tolist() == [0.0] * 4


def test_deviations_are_exact_beside_a_large_mean() -> None:
    x = (torch.arange(300.0).reshape(100, 3) % 7 + 100_000) * 1e-3
    torch._dynamo.reset()
    found = compiled(lambda x: torch.std(x, 0))(x)
    torch.testing.assert_close(found, x.double().std(0).float(), rtol=1.2e-7, atol=0)


@pytest.mark.parametrize("length", [2, 3, 40])
def test_a_variance_that_overflows_float32_is_infinite(length: int) -> None:
    """Not NaN: the mean's rounding error exceeds the square root of the largest float32."""
    x = torch.full((2, length), 1e30)
    x[:, 0] = 2e30
    torch._dynamo.reset()
    variance, mean = compiled(lambda x: torch.var_mean(x, -1))(x)
    assert variance.tolist() == [torch.inf] * 2
    torch.testing.assert_close(mean, x.double().mean(-1).float())


def test_a_batch_of_the_largest_floats_is_normalised_to_zeros() -> None:
    largest = torch.full((4, 2), torch.finfo(torch.float32).max)
    torch._dynamo.reset()
    normalised = compiled(lambda x: torch.nn.functional.batch_norm(x, None, None, training=True))
    assert normalised(largest).eq(0).all()
