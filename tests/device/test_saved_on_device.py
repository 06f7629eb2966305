"""Tests tensors that forward saves with strides that eager does not have. Needs a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

ROWS, DEPTH, COLUMNS = 2048, 768, 5001


def loss(x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy((x @ weight.t()).float(), labels)


def gradients(function: Any, *given: torch.Tensor) -> list[torch.Tensor]:
    leaves = [g.clone().requires_grad_() for g in given[:2]]
    result = function(*leaves, *given[2:])
    result.backward()
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("offloaded", [False, True])
@pytest.mark.parametrize("options", [{}, {"cudagraphs": True}, {"templates": True}], ids=str)
def test_logits_that_are_only_saved_keep_their_gap_and_gradients_equal_eager(
    options: dict[str, Any], *, offloaded: bool
) -> None:
    """A hook that moves saved tensors elsewhere returns them contiguous."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(loss, backend="tcdebug", options=options)
    saved: set[tuple[int, ...]] = set()

    def pack(value: torch.Tensor) -> torch.Tensor:
        saved.add(value.stride())
        return value.contiguous() if offloaded else value

    for _ in range(4):
        x = torch.randn(ROWS, DEPTH, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(COLUMNS, DEPTH, device="cuda", dtype=torch.bfloat16) / 16
        labels = torch.randint(0, COLUMNS, (ROWS,), device="cuda")
        expected = gradients(loss, x, weight, labels)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            result = gradients(compiled, x, weight, labels)
        for wanted, got in zip(expected, result, strict=True):
            assert got.stride() == wanted.stride()
            assert (got - wanted).norm() <= 0.02 * wanted.norm()
    assert (5008, 1) in saved
