"""Constants are folded if that saves work and nobody can write to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, aten_graph, ops
from judge import assert_as_eager, assert_same, compiled
from programs import f32

from tcdebug.compiler.passes.constant_folding import constant_folding

aten = torch.ops.aten


def table(width: int = 4) -> torch.Tensor:
    """A row of frequencies, as in rotary embeddings."""
    return aten.exp.default(aten.arange.start_step(0, width))


def folded(function: Callable[..., Any], *inputs: torch.Tensor) -> dict[str, int]:
    """The remaining operators, including dead ones."""
    _, module = applied(constant_folding, aten_graph(function, *inputs))
    assert_same(module(*inputs), function(*inputs), exact=True)
    module.graph.eliminate_dead_code()
    module.recompile()
    return ops(module)


def test_a_node_that_depends_on_no_input_becomes_a_constant() -> None:
    assert folded(lambda x: x * aten.sin.default(table()), f32(3, 4)) == {"mul.Tensor": 1}


def test_a_constant_that_is_cheaper_to_compute_than_to_load_is_not_folded() -> None:
    left = folded(lambda x: x + aten.mul.Tensor(aten.arange.start_step(0, 4), 2), f32(3, 4))
    assert left == {"arange.start_step": 1, "mul.Tensor": 1, "add.Tensor": 1}


def test_a_large_constant_is_computed_each_time() -> None:
    left = folded(lambda x: x + aten.sum.default(table(1 << 21)), f32(3))
    assert left["exp.default"] == 1


@pytest.mark.parametrize(
    "returned", [lambda t: t, lambda t: aten.view.default(t, [2, 2])], ids=["itself", "view"]
)
def test_a_constant_that_is_returned_is_a_new_tensor_each_time(
    returned: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def function(x: torch.Tensor) -> Any:
        t = table()
        return x * t, returned(t)

    _, module = applied(constant_folding, aten_graph(function, f32(4)))
    assert ops(module)["exp.default"] == 1
    once = compiled(lambda x: (x * torch.arange(4.0).exp(), torch.arange(4.0).exp().view(2, 2)))
    once(f32(4))[1].zero_()
    assert once(f32(4))[1][0, 0] == 1.0


def test_random_numbers_are_not_constants() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return aten.mul.Tensor(x, aten.rand.default([4]))  # type: ignore[no-any-return] # a tensor

    changed, module = applied(constant_folding, aten_graph(function, f32(4)))
    assert not changed
    assert ops(module) == {"rand.default": 1, "mul.Tensor": 1}


def test_a_folded_constant_keeps_its_strides() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(12.0).view(3, 4).exp().t().exp()

    assert_as_eager(compiled(function), function, [f32(4, 3)])


def test_an_expanded_constant_stays_one_row() -> None:
    """Like the logarithm of relative positions, which DeBERTa-v2 expands."""

    def repeated(x: torch.Tensor) -> torch.Tensor:
        return x + aten.expand.default(aten.unsqueeze.default(table(), 0), [3, 4])

    assert folded(repeated, f32(3, 4)) == {"add.Tensor": 1}


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(2.5, torch.float32), (-0.0, torch.bfloat16), (torch.inf, torch.float16), (7, torch.int64)],
)
def test_equal_elements_are_a_number_in_the_kernel(number: float, dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        whole = aten.fill.Scalar(aten.zeros.default([64, 32], dtype=dtype), number)
        return aten.maximum.default(x, aten.neg.default(whole))  # type: ignore[no-any-return]

    x = torch.zeros(64, 32, dtype=dtype)
    assert folded(function, x) == {"full.default": 1, "maximum.default": 1}
    assert_as_eager(compiled(function), function, [x.t().contiguous().t()], exact=True)


def test_elements_that_differ_in_the_sign_of_zero_are_kept() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        sines = aten.sin.default(aten.arange.start_step(0.0, 2048.0))
        signs = aten.copysign.Tensor(aten.zeros.default([2048]), sines)
        return aten.div.Tensor(x, signs)  # type: ignore[no-any-return] # a tensor

    assert folded(function, f32(2048)) == {"div.Tensor": 1}


def test_nodes_with_dynamic_sizes_are_not_constants() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(x.shape[0]).sin()

    once = compiled(function, dynamic=True)
    for size in (4, 7):
        assert_as_eager(once, function, [f32(size)])
