"""Few long rows, rows along any axis of memory, and values that several kernels compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def integers(*size: int) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in float32."""
    return torch.randint(-3, 4, size, device="cuda").float()


def permuted(*size: int) -> torch.Tensor:
    return integers(*reversed(size)).permute(*reversed(range(len(size))))


EXACT: dict[str, Callable[[], Program]] = {
    "scan of columns": lambda: (lambda x: x.cumsum(0), (integers(300_007, 13),)),
    "scan of one row": lambda: (lambda x: x.cumsum(0), (integers(1_000_003),)),
    "scan of bools": lambda: (lambda x: (x > 0).cumsum(1), (integers(3, 300_007),)),
    "scan of a permuted row": lambda: (lambda x: x.cumsum(1), (permuted(64, 127, 256),)),
    "scan of a repeated row": lambda: (
        lambda x: x.cumsum(0),
        (integers(1, 127, 251).expand(400, 127, 251),),
    ),
    "places in columns": lambda: (lambda x: (x.argmax(0), x.min(0)), (integers(300_007, 13),)),
    "places in all": lambda: (lambda x: (x.argmin(), x.argmax()), (integers(4096, 1000),)),
    "sums of a permuted tensor": lambda: (
        lambda x: (x.sum(), x.sum(0), x.sum(1), x.sum((0, 2))),
        (permuted(64, 127, 256),),
    ),
    "sums of a slice": lambda: (
        lambda x: (x.sum(0), x.amax((0, 1)), x.argmax(1)),
        (integers(64, 127, 512)[..., ::2],),
    ),
    "windows": lambda: (
        lambda x: (
            F.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1)),
            F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1),
        ),
        (integers(2, 3, 30, 41),),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_results_of_exact_sums_and_places_are_those_of_eager(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    function, given = EXACT[name]()
    compiled = torch.compile(function, backend="tcdebug", dynamic=False)
    pairs = zip(tree_leaves(function(*given)), tree_leaves(compiled(*given)), strict=True)
    assert all(torch.equal(expected, found) for expected, found in pairs)


COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "quotient": lambda x: x / (x.abs().amax(-1, keepdim=True) + 1),
    "product and sum": lambda x: x * 1.1 + 0.3,
    "difference of products": lambda x: x * x - x * 0.7,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_two_kernels_compute_has_the_same_bits(name: str) -> None:
    """One kernel finds the largest of each column, another one compares with them."""

    def places_of_largest(x: torch.Tensor) -> torch.Tensor:
        computed = COMPUTED[name](x)
        return (computed == computed.amax(0)).sum(-1)

    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(8192, 56, device="cuda")
    found = torch.compile(places_of_largest, backend="tcdebug")(x)
    assert int(found.sum()) == 56
    assert torch.equal(found, places_of_largest(x))


def test_the_gradient_of_extremes_of_recomputed_values_has_no_nan() -> None:
    def largest(x: torch.Tensor) -> torch.Tensor:
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        scaled = scaled / (scaled.abs().amax(-1, keepdim=True) + 1)
        centered = scaled - scaled.mean(0, keepdim=True)
        return (centered / (centered.abs().amax(-1, keepdim=True) + 1)).softmax(-1).var(-1)

    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(64, 32, 56, device="cuda", requires_grad=True)
    (expected,) = torch.autograd.grad(largest(x).sum(), x)
    (found,) = torch.autograd.grad(torch.compile(largest, backend="tcdebug")(x).sum(), x)
    assert torch.isfinite(found).all()
    assert (found - expected).norm() < 1e-3 * expected.norm()
