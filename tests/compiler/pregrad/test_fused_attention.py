"""Unfused attention becomes one call, with the same NaN, layout and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, ops, torch_graph
from judge import assert_same, compiled, gradients
from programs import f32
from torch.nn import functional as F

from tcdebug.compiler.pregrad.fused_attention import fused_attention

INF, NAN = float("inf"), float("nan")
ONE_CALL = "scaled_dot_product_attention"
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

WRITTEN_OUT: dict[str, Attention] = {
    "divided": lambda q, k, v: ((q @ k.transpose(-2, -1)) / 4).softmax(-1) @ v,
    "multiplied": lambda q, k, v: torch.matmul(
        F.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.25, dim=-1), v
    ),
    "scaled_before": lambda q, k, v: torch.softmax((q * 0.25) @ k.mT, dim=3) @ v,
    "plain": lambda q, k, v: (q @ k.permute(0, 1, 3, 2)).softmax(-1).matmul(v),
}


def qkv() -> list[torch.Tensor]:
    """Queries, keys and values, long enough for fusion to pay."""
    shared = f32(3, 1, 2, 128, 16)
    return [shared[0], shared[1].roll(1, 2), shared[2]]


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_unfused_attention_becomes_one_call(name: str) -> None:
    changed, module = applied(fused_attention, torch_graph(WRITTEN_OUT[name], *qkv()))
    assert changed
    assert ops(module)[ONE_CALL] == 1
    assert "softmax" not in ops(module)


NEAR: dict[str, Attention] = {
    "masked": lambda q, k, v: (q @ k.mT + q[0, 0, :, :1]).softmax(-1) @ v,
    "dropped": lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.5) @ v,
    "other_dimension": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "weights_returned": lambda q, k, v: (lambda w: w @ v + w.sum())((q @ k.mT).softmax(-1)),
    "double": lambda q, k, v: (q.double() @ k.double().mT).softmax(-1) @ v.double(),
    "in_double": lambda q, k, v: (q @ k.mT).softmax(-1, torch.float64) @ v.double(),
    "three_dimensions": lambda q, k, v: (q[0] @ k[0].mT).softmax(-1) @ v[0],
    "other_width": lambda q, k, v: (q @ k.mT).softmax(-1) @ v[..., :8],
    "shared_heads": lambda q, k, v: (q @ k[:, :1].mT).softmax(-1) @ v,
    "short": lambda q, k, v: (q[:, :, :64] @ k.mT).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", NEAR)
def test_code_that_only_resembles_attention_stays(name: str) -> None:
    changed, module = applied(fused_attention, torch_graph(NEAR[name], *qkv()))
    assert not changed
    assert ONE_CALL not in ops(module)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_values_strides_and_gradients_are_those_of_eager(name: str) -> None:
    def inputs() -> list[Any]:
        return [t.clone().requires_grad_() for t in qkv()]

    mine = gradients(compiled(WRITTEN_OUT[name]), inputs())
    assert_same(mine, gradients(WRITTEN_OUT[name], inputs()))


def test_nan_and_infinity_appear_where_eager_has_them() -> None:
    q, k, v = qkv()
    q[0, 0, 0], q[0, 0, 1, 3], q[0, 1, 2, 5] = -INF, NAN, INF
    expected = WRITTEN_OUT["divided"](q, k, v)
    assert expected.isnan().any(-1).sum() == 3
    once = compiled(WRITTEN_OUT["divided"])
    assert_same(once(q, k, v), expected)
    k[0, 1, 3, 4], k[0, 0, 7, 2], v[0, 0, 5, 5] = NAN, INF, INF
    assert_same(once(q, k, v), WRITTEN_OUT["divided"](q, k, v))


def test_one_compile_serves_many_lengths() -> None:
    once = compiled(WRITTEN_OUT["divided"], dynamic=True)
    for length in (128, 150, 40):
        inputs = [t[:, :, :length].contiguous() for t in (f32(1, 2, 160, 16),) * 3]
        assert_same(once(*inputs), WRITTEN_OUT["divided"](*inputs))
