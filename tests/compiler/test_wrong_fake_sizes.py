"""An operator that returns another size than its fake kernel says is an error, not wrong values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from judge import assert_same, compiled, copies, gradients


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = torch.library.Library("wrong_fake_sizes", "DEF")
    library.define("positive(Tensor x) -> Tensor")
    library.define("both(Tensor x) -> (Tensor, Tensor)")
    library.impl("positive", _positive, "CPU")
    library.impl("both", lambda x: (_positive(x), _positive(x)), "CPU")
    torch.library.register_fake(
        "wrong_fake_sizes::positive", lambda x: x.new_empty(1, dtype=torch.int64), lib=library
    )
    torch.library.register_fake(
        "wrong_fake_sizes::both",
        lambda x: tuple(x.new_empty(1, dtype=torch.int64) for _ in range(2)),
        lib=library,
    )
    yield
    library._destroy()


def _positive(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).nonzero().flatten()


def read_in_forward(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.ops.wrong_fake_sizes.positive(x.detach()) * 2 + values.sum()


def read_in_backward(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return values.index_select(0, torch.ops.wrong_fake_sizes.positive(x.detach()) + 1)


class SelectedByOperator(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, values: torch.Tensor, operator: Any) -> torch.Tensor:
        found = operator(x)
        ctx.save_for_backward(found if isinstance(found, torch.Tensor) else found[1])
        return values * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        return None, gradients[0].index_select(0, places).sum() * torch.ones(4), None


def saved_result(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    made: Any = SelectedByOperator.apply
    result: torch.Tensor = made(x, values, torch.ops.wrong_fake_sizes.positive)
    return result


def saved_result_of_several(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    made: Any = SelectedByOperator.apply
    result: torch.Tensor = made(x, values, torch.ops.wrong_fake_sizes.both)
    return result


@pytest.mark.parametrize(
    "function", [read_in_forward, read_in_backward, saved_result, saved_result_of_several]
)
def test_a_kernel_does_not_read_a_value_of_another_size(function: Any) -> None:
    torch._dynamo.reset()
    values = torch.arange(4.0, requires_grad=True)
    once = compiled(function)
    one, two = torch.tensor([-1.0, 2.0, -1.0, -1.0]), torch.tensor([-1.0, 2.0, 3.0, -1.0])
    torch.testing.assert_close(once(one, values), function(one, values))
    with pytest.raises(RuntimeError, match=r"an operator returned size \(2,\), not \(1,\)"):
        once(two, values).sum().backward()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_bag_of_embeddings_is_trained_whatever_its_fake_kernel_returns(
    mode: str, dtype: torch.dtype
) -> None:
    """The fake kernel of torch returns another size than the kernel for a sum of bfloat16."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 8, generator=generator).to(dtype).requires_grad_()
    places, bags = torch.randint(0, 50, (64,), generator=generator), torch.arange(0, 64, 8)

    def bag(places: torch.Tensor, weight: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(places, weight, bags, mode=mode) * 2

    torch._dynamo.reset()
    inputs = [places, weight, bags]
    assert_same(gradients(compiled(bag), copies(inputs)), gradients(bag, inputs))
