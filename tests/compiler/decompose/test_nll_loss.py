"""The gradient of the negative log likelihood loss, and the tensors saved for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from judge import assert_same, compiled, copies, gradients
from programs import f32, i64
from stages import capture
from torch.nn import functional as F

SHAPES = ((5,), (7, 5), (2, 5, 3, 4), (0, 5))
OPTIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "ignored": {"ignore_index": 2},
    "weighted": {"weight": torch.tensor([0.5, 0.0, 2.0, 1.0, -1.0])},
}


@pytest.mark.sampled
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_are_those_of_eager(options: dict[str, Any]) -> None:
    targets = [i64(5, *shape[:1], *shape[2:]) if shape[1:] else i64(5) for shape in SHAPES]

    def losses(*inputs: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(inputs, targets, strict=True)
        return [F.nll_loss(x.sin(), target, **options) for x, target in pairs]

    inputs = [f32(*shape).requires_grad_() for shape in SHAPES]
    assert_same(gradients(compiled(losses), copies(inputs)), gradients(losses, inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_more_targets_than_float16_has_numbers_have_a_mean(
    dtype: torch.dtype, weighted: bool
) -> None:
    """Eager's loss of float16 is NaN on a CPU, and right on a GPU."""
    logits = f32(70_000, 4).to(dtype)
    target = torch.arange(70_000) % 4
    weight = torch.tensor([0.5, 1.0, 2.0, 1.0], dtype=dtype) if weighted else None

    def loss(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return F.nll_loss(x, target, weight)

    expected = loss(logits.float(), None if weight is None else weight.float())
    torch.testing.assert_close(
        compiled(loss)(logits, weight).float(), expected, rtol=1e-2, atol=1e-3
    )


def test_no_float32_copy_of_half_precision_logits_is_saved() -> None:
    target = torch.randint(0, 50, (32,))
    logits = f32(32, 50).bfloat16().requires_grad_()
    captured = capture(lambda x: F.cross_entropy(x.float(), target), logits)
    backward = captured.aten[-1]
    kept = [n.meta["val"] for n in backward.graph.find_nodes(op="placeholder")]
    assert [v.dtype for v in kept if v.numel() == 32 * 50] == [torch.bfloat16]


def test_a_detached_result_of_softmax_is_recomputed() -> None:
    captured = capture(lambda x: (x * 2).softmax(-1).sum(), f32(32, 50).requires_grad_())
    backward = captured.aten[-1]
    kept = [n.meta["val"].shape for n in backward.graph.find_nodes(op="placeholder")]
    assert kept.count((32, 50)) == 1
