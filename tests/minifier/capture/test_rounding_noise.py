"""A backend with noise in what operators round."""

from __future__ import annotations

from typing import Any

import torch

from tcdebug.minifier.capture.rounding_noise import with_noise, without_noise


def test_what_operators_round_changes_in_its_last_bits() -> None:
    def rounding(x: torch.Tensor) -> Any:
        x.mul_(1 / 3)
        return x, x.exp(), x.softmax(-1), x.bfloat16().sigmoid(), x.double().sin()

    def results(function: Any) -> Any:
        return function(torch.linspace(-2, 2, 32).reshape(4, 8))

    torch._dynamo.reset()
    call = torch.compile(rounding, backend=with_noise)
    eager, noisy, again = results(rounding), results(call), results(call)
    for value, other, same in zip(noisy, eager, again, strict=True):
        assert torch.equal(value, same), "equal calls have equal results"
        assert not torch.equal(value, other)
        torch.testing.assert_close(value, other, rtol=32 * torch.finfo(value.dtype).eps, atol=1e-5)
    control = results(torch.compile(rounding, backend=without_noise))
    assert all(map(torch.equal, control, eager))


def test_moved_and_exact_values_are_those_of_eager() -> None:
    def exact(x: torch.Tensor) -> Any:
        wide = x.double()
        moved = wide.t().contiguous(), torch.cat([wide, -wide]), x[1:].clone(), *x.max(-1)
        return (
            *moved,
            x * 2,
            x.relu(),
            (x * 4).long(),
            torch.rand_like(x),
            x.new_full((2,), torch.inf),
        )

    x = torch.linspace(-2, 2, 32).reshape(4, 8) / 3
    torch._dynamo.reset()
    torch.manual_seed(0)
    expected = exact(x)
    torch.manual_seed(0)
    for value, other in zip(torch.compile(exact, backend=with_noise)(x), expected, strict=True):
        assert torch.equal(value, other)


def test_gradients_have_noise_too() -> None:
    leaf, other = (torch.linspace(-2, 2, 32).requires_grad_() for _ in range(2))
    torch._dynamo.reset()
    torch.sinh(leaf).sum().backward()
    torch.compile(torch.sinh, backend=with_noise)(other).sum().backward()
    assert leaf.grad is not None
    assert other.grad is not None
    assert not torch.equal(leaf.grad, other.grad)
    torch.testing.assert_close(other.grad, leaf.grad)
