"""Graph breaks, several graphs, and the modes in which programs run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import assert_as_eager, assert_same, compiled
from programs import f32
from torch import nn
from torch.nn import functional as F


def test_the_backend_is_known_by_name() -> None:
    f = torch.compile(lambda x: x + 1, backend="tcdebug")
    assert f(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_a_graph_break_keeps_the_order_of_effects() -> None:
    said: list[float] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        said.append(float(y.sum()))
        torch._dynamo.graph_break()
        y = y + 1
        said.append(float(y.sum()))
        return y

    assert compiled(function)(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert said == [6.0, 9.0]


def test_two_functions_with_kernels_of_the_same_name_are_kept_apart() -> None:
    first, second = compiled(lambda x: x + 1), compiled(lambda x: x + 2)
    x = torch.zeros(3)
    for _ in range(2):
        assert first(x).tolist() == [1.0, 1.0, 1.0]
        assert second(x).tolist() == [2.0, 2.0, 2.0]


def test_a_branch_on_a_number_makes_one_graph_per_branch() -> None:
    f = compiled(lambda x, up: x + 1 if up else x - 1)
    assert f(torch.zeros(2), True).tolist() == [1.0, 1.0]
    assert f(torch.zeros(2), False).tolist() == [-1.0, -1.0]


def test_an_inference_graph_is_made_without_gradients() -> None:
    weight = f32(4).requires_grad_()
    f = compiled(lambda x: x * weight)
    with torch.no_grad():
        result = f(torch.ones(4))
    assert not result.requires_grad
    assert f(torch.ones(4)).requires_grad
    assert torch.equal(result, weight)


def test_inference_mode() -> None:
    f = compiled(lambda x: (x * 2).softmax(-1))
    with torch.inference_mode():
        result = f(f32(3, 4))
    assert result.is_inference()
    assert_same(result, (f32(3, 4) * 2).softmax(-1))


def test_a_no_grad_block_inside_the_function() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    mine, theirs = f32(5).requires_grad_(), f32(5).requires_grad_()
    compiled(function)(mine).sum().backward()
    function(theirs).sum().backward()
    assert_same(mine.grad, theirs.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_around_and_inside_a_function(dtype: torch.dtype) -> None:
    def inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return F.relu(x @ w).softmax(-1)

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(x @ w).softmax(-1)

    inputs = [f32(4, 5), f32(5, 6)]
    assert_as_eager(compiled(inside), inside, inputs)
    with torch.autocast("cpu", dtype=dtype):
        assert_as_eager(compiled(plain), plain, inputs)


def test_a_module_with_buffers_and_training_mode() -> None:
    def run(wrap: Callable[[nn.Module], Callable[..., Any]]) -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
        f = wrap(model)
        trained = f(f32(2, 2, 6, 6))
        model.eval()
        return trained, f(f32(2, 2, 6, 6)), model[1].running_mean, model[1].num_batches_tracked

    assert_same(run(compiled), run(lambda model: model))


def test_random_numbers_of_dropout_in_aten_are_those_of_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, training=True)

    torch.manual_seed(5)
    found = compiled(function)(torch.ones(1000))
    assert set(found.unique().tolist()) == {0.0, 2.0}
    assert 350 < int((found == 0).sum()) < 650
    torch.manual_seed(5)
    assert torch.equal(found, function(torch.ones(1000)))


def test_two_draws_differ_and_a_seed_repeats_them() -> None:
    f = compiled(lambda x: (x + torch.rand(8), x + torch.rand(8)))
    torch.manual_seed(1)
    first, second = f(torch.zeros(8))
    torch.manual_seed(1)
    again, _ = f(torch.zeros(8))
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.zeros(torch.rand_like(x).shape), torch.rand_like(x)),
        lambda x: (torch.zeros(torch.randn_like(x).shape), torch.rand_like(x) * x),
        lambda x: (torch.zeros(F.dropout(x, 0.5).shape), F.dropout(x, 0.5)),
        lambda x: (torch.zeros(x.clone().uniform_().shape), torch.rand(3)),
        lambda x: (torch.rand_like(x), torch.zeros(torch.bernoulli(x.abs().clamp(max=1)).shape)),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_unused_random_numbers_are_drawn_too(function: Any, gradients: bool) -> None:
    """Otherwise later draws would differ from eager, inside the graph and after it."""

    def drawn(f: Any) -> Any:
        torch.manual_seed(5)
        return f(f32(8).requires_grad_(gradients)), torch.get_rng_state()

    assert_same(drawn(compiled(function)), drawn(function))


def test_complex_numbers_are_left_to_aten() -> None:
    def function(x: torch.Tensor) -> Any:
        z = torch.complex(x, x * 2)
        return z * z.conj(), z.abs() + 1, torch.view_as_real(z)

    assert_as_eager(compiled(function), function, [f32(5)])


def test_nested_arguments_and_results_are_supported() -> None:
    def function(given: dict[str, Any]) -> dict[str, Any]:
        return {"sum": given["a"] + given["b"][0], "none": None, "size": given["a"].shape}

    given = {"a": f32(3), "b": [f32(3), f32(2)]}
    found = compiled(function)(given)
    assert found["none"] is None
    assert found["size"] == (3,)
    assert torch.equal(found["sum"], given["a"] + given["b"][0])


def test_a_deep_chain_does_not_recurse() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for k in range(400):
            x = x + k % 3
        return x

    assert_as_eager(compiled(function), function, [torch.zeros(4)])


def test_a_bad_option_suggests_an_existing_one() -> None:
    with pytest.raises(Exception, match=r"no option 'oof'; did you mean off"):
        compiled(lambda x: x + 1, options={"oof": ["fuse"]})(torch.ones(2))
