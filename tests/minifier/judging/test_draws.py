"""Drawing the random numbers of one run in another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tcdebug.minifier.judging.reference.draws import Unrepeatable, with_equal_draws

SEED = 1234
HALVES = torch.tensor([[0.5, 1.5, -2.0], [3.0, 0.25, 1.0]], dtype=torch.bfloat16)


def _seeded(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(SEED)
    return call(x)


@pytest.mark.parametrize(
    "call",
    [
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.rand(2, 3, dtype=x.dtype) + torch.randn(2, 1, dtype=x.dtype),
        lambda x: F.dropout(x, 0.5),
        lambda x: F.dropout(x.clone(), 0.5, inplace=True),
        lambda x: torch.native_dropout(x, 0.5, True)[0],  # what F.dropout calls on a GPU
        lambda x: torch.native_dropout(x, 1.0, True)[0] + torch.native_dropout(x, 0.5, False)[0],
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)[0],
        lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
        lambda x: x.clone().uniform_() + x.clone().normal_() * torch.randint_like(x, 4),
        lambda x: torch.randperm(6).reshape(2, 3) * x,
        lambda x: torch.utils.checkpoint.checkpoint(F.dropout, x, use_reentrant=False),
    ],
)
def test_a_float64_run_draws_what_the_narrow_one_draws(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    narrow = _seeded(call, HALVES)
    wide = with_equal_draws(
        lambda: _seeded(call, HALVES), lambda: _seeded(call, HALVES.double()), seed=SEED
    )
    torch.testing.assert_close(wide, narrow.double(), atol=2**-7, rtol=2**-7)
    assert wide.dtype == torch.float64


def test_in_float64_torch_draws_different_numbers() -> None:
    """Without this, the claim above would be trivially true."""
    other = _seeded(torch.rand_like, HALVES.double()) - _seeded(torch.rand_like, HALVES).double()
    assert other.abs().max() > 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.rrelu(x, training=True),
        lambda x: torch.normal(x, x.abs()),
        lambda x: torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), torch.neg, (x,)),
    ],
)
def test_if_an_operator_hides_its_random_numbers_there_is_no_such_run(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with pytest.raises(Unrepeatable):
        with_equal_draws(lambda: _seeded(call, HALVES), lambda: None, seed=SEED)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.neg, (x,)),
    ],
)
def test_attention_without_dropout_and_control_flow_draw_nothing(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    wide = with_equal_draws(
        lambda: _seeded(call, HALVES), lambda: _seeded(call, HALVES.double()), seed=SEED
    )
    assert torch.equal(wide, call(HALVES.double()))
