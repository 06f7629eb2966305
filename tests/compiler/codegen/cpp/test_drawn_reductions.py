"""Drawn chains of arithmetic, rearrangements, reductions and scans, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st
from judge import about, compiled
from property_settings import property_settings
from torch import Tensor
from torch.nn import functional as F

Step = Callable[[Tensor, int], Tensor]

SIZES = (1, 3, 4, 7, 8, 16, 17, 33, 64, 65, 130, 257)
MOST = 40_000
ARITHMETIC: dict[str, Step] = {
    "linear": lambda x, d: x * 3 + 0.25,
    "sine": lambda x, d: x.sin(),
    "sigmoid": lambda x, d: x.sigmoid(),
    "choice": lambda x, d: torch.where(x > 0.3, x.tanh(), -x),
    "centred": lambda x, d: x - x.mean(d, keepdim=True),
}
REARRANGED: dict[str, Step] = {
    "as it is": lambda x, d: x,
    "transposed": lambda x, d: x.transpose(d, -1),
    "turned": lambda x, d: x.flip(d),
    "every second": lambda x, d: x[..., ::2] if x.shape[-1] > 1 else x,
    "without the first": lambda x, d: x.narrow(d, 1, x.shape[d] - 1) if x.shape[d] > 1 else x,
    "rolled": lambda x, d: x.roll(2, d),
    "joined": lambda x, d: torch.cat([x, x.flip(d) * 2], d),
    "padded": lambda x, d: F.pad(x, (1, 2)),
}
REDUCED: dict[str, Step] = {
    "sum": lambda x, d: x.sum(d),
    "mean of all": lambda x, d: x.mean(),
    "largest": lambda x, d: x.amax(d),
    "value at the smallest": lambda x, d: x.take_along_dim(x.argmin(d, keepdim=True), d),
    "value and place": lambda x, d: x.max(d, keepdim=True).values,
    "variance": lambda x, d: x.var(d, correction=0, keepdim=True),
    "norm": lambda x, d: x.norm(dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "running sum": lambda x, d: x.cumsum(d),
    "largest so far": lambda x, d: x.cummax(d).values,
    "smallest so far": lambda x, d: x.cummin(d).values,
}
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""What a result may differ by from that in float64, besides eight times what eager's differs by."""


@dataclass(frozen=True)
class Chain:
    """Steps, each with the dimension that it is about, counted from the end."""

    steps: tuple[tuple[str, int], ...]

    def __call__(self, x: Tensor) -> Tensor:
        for name, dim in self.steps:
            if x.dim():
                x = (ARITHMETIC | REARRANGED | REDUCED)[name](x, max(dim, -x.dim()))
        return x


def chains() -> st.SearchStrategy[Chain]:
    kinds = (ARITHMETIC, REARRANGED, REDUCED, ARITHMETIC)
    step = [st.tuples(st.sampled_from(sorted(kind)), st.integers(-3, -1)) for kind in kinds]
    return st.tuples(*step).map(Chain)


def outcome(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    result = function(x)
    weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(x.dtype)
    return result.detach(), torch.autograd.grad(result, x, weights)[0]


@property_settings(12)
@given(
    chain=chains(),
    sizes=st.lists(st.sampled_from(SIZES), min_size=3, max_size=3),
    order=st.permutations([0, 1, 2]),
    dtype=st.sampled_from(sorted(TOLERANCE, key=str)),
)
def test_a_drawn_chain_and_its_gradient_are_those_of_eager(
    chain: Chain, sizes: list[int], order: list[int], dtype: torch.dtype
) -> None:
    while torch.Size(sizes).numel() > MOST:
        sizes = [max(1, n // 2) for n in sizes]
    count = torch.Size(sizes).numel()
    distinct = torch.randperm(count, generator=torch.Generator().manual_seed(0)) / count * 4 - 2
    x = distinct.reshape(sizes).permute(order).to(dtype)
    torch._dynamo.reset()
    exact = outcome(chain, x.double())
    with about(chain=chain, sizes=sizes, order=order, dtype=dtype):
        for mine, eagers, true in zip(
            outcome(compiled(chain), x), outcome(chain, x), exact, strict=True
        ):
            allowed = 8 * (eagers - true).abs().max() + TOLERANCE[dtype] * (1 + true.abs())
            assert mine.dtype == eagers.dtype
            assert bool(((mine - true).abs() <= allowed).all())
