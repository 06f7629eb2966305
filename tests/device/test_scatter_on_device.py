"""Tests scans, scatters and random numbers on an NVIDIA GPU. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from tcdebug.compiler.operators.philox import philox, random_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

NAN = float("nan")


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="tcdebug", options=options)


@pytest.mark.parametrize("off", [[], ["codegen.persistent"]], ids=["whole", "in loops"])
def test_running_extremes_and_logarithms_equal_eager(off: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.cummax(1), x.cummin(1), y.logcumsumexp(1), y.cumsum(1)

    x = torch.randint(-9, 9, (40, 5000), device="cuda") * 0.5
    x[3, 4000] = NAN
    y = torch.randn(40, 5000, device="cuda")
    given = compiled(function, off=off)(x, y)
    for mine, theirs in zip(tree_leaves(given), tree_leaves(function(x, y)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3, equal_nan=True)


def test_values_for_the_same_element_are_added() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Any:
        row = i[:, 0]
        return (
            x.scatter_add(0, i, y),
            x.index_add(0, row, y),
            x.bfloat16().index_add(0, row, y.bfloat16()),
            torch.ops.aten.embedding_dense_backward(y, row, 100, 2, False),
            (x * 9).int().scatter_reduce(0, i, (y * 9).int(), "amax"),
        )

    x, y = torch.randn(100, 64, device="cuda"), torch.randn(3000, 64, device="cuda")
    i = torch.randint(0, 100, (3000, 64), device="cuda")
    for mine, theirs in zip(compiled(function)(x, y, i), function(x, y, i), strict=True):
        half = mine.dtype == torch.bfloat16
        torch.testing.assert_close(
            mine, theirs, rtol=0.1 if half else 1e-4, atol=1.0 if half else 1e-3
        )


def test_deterministic_sums_are_left_to_aten() -> None:
    x, i = torch.randn(3000, device="cuda"), torch.randint(0, 9, (3000,), device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        add = compiled(lambda x, i: torch.zeros(9, device="cuda").index_add(0, i, x))
        first = add(x, i)
        assert all(torch.equal(first, add(x, i)) for _ in range(5))
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_gpu_draws_what_a_cpu_draws_from_the_same_seed() -> None:
    bits = random_bits()
    seed = torch.tensor(-987654321987)
    on_gpu = compiled(lambda seed: bits(seed, 5, [1000]))(seed.cuda())
    assert torch.equal(on_gpu.cpu(), philox(seed, torch.tensor(5), torch.arange(1000)))


def test_backward_drops_what_forward_dropped() -> None:
    x = torch.ones(512, 512, device="cuda", requires_grad=True)
    drop = compiled(lambda x: F.dropout(x * 2, 0.4).sin(), fallback_random=False)
    torch.manual_seed(3)
    y = drop(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(y == 0, x.grad == 0)
    assert abs((y == 0).float().mean().item() - 0.4) < 0.01
    torch.manual_seed(3)
    assert torch.equal(drop(x), y)
