from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tcdebug.minifier.capture.float64_graphs import in_float64, in_own_dtypes

Function = Callable[..., Any]


def compiled(function: Function) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, backend=in_float64)


def test_the_control_has_the_results_of_eager_and_is_otherwise_alike() -> None:
    """A result that is computed from another one does not depend on it in either run."""

    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = (x * 3).exp().tanh() / 3
        return inner.sigmoid(), inner

    x = torch.linspace(-2, 2, 64, requires_grad=True)
    for backend in (in_float64, in_own_dtypes):
        torch._dynamo.reset()
        outer, inner = torch.compile(two, backend=backend)(x)
        assert torch.equal(outer, two(x)[0]) == (backend is in_own_dtypes)
        assert torch.autograd.grad(outer.sum(), inner, allow_unused=True) == (None,)


def test_results_and_gradients_are_rounded_once() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).exp() * x.sigmoid() + x.tanh() / 3

    def gradient(x: torch.Tensor) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(compiled(chain)(leaf).sum(), leaf)[0]

    x = torch.linspace(-2, 2, 64, dtype=torch.bfloat16)
    exact = chain(x.double()).to(torch.bfloat16)
    assert not torch.equal(chain(x), exact), "eager rounds after each operator"
    assert torch.equal(compiled(chain)(x), exact)
    assert gradient(x).dtype == torch.bfloat16


def draws(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x) / 3 + x.exp()


def updates(x: torch.Tensor) -> torch.Tensor:
    x.mul_(1 / 3)
    return x.exp() / 3


def needs_float32(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32) + x.exp()[:, None].view(torch.int32)[:, 0]


def takes_a_step(x: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(x, torch.full_like(x, 4.0))


def takes_a_step_in_a_branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, takes_a_step, torch.clone, (x,))


def reads_bits(x: torch.Tensor) -> torch.Tensor:
    return x * (x.view(torch.int16) & 7).sum()


def integers(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return (x * 100).long() // 7, x.shape[0]


@pytest.mark.parametrize(
    "function",
    [
        draws,
        updates,
        needs_float32,
        takes_a_step,
        takes_a_step_in_a_branch,
        reads_bits,
        integers,
    ],
)
def test_everything_else_is_as_in_eager(function: Function) -> None:
    def results(call: Function) -> list[Any]:
        torch.manual_seed(0)
        x = torch.linspace(0.1, 3, 16)
        found = call(x)
        return [x, *(found if isinstance(found, tuple) else [found])]

    torch.testing.assert_close(results(compiled(function)), results(function), rtol=0.0, atol=0.0)
