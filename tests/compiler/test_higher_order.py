"""Higher-order operators, custom operators, and tensors that kernels cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from judge import assert_as_eager, assert_same, compiled, gradients
from programs import f32
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

HIGHER: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "cond": (
        lambda x: torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos() - 1, (x,)) * 2,
        (f32(3, 4),),
    ),
    "while_loop": (
        lambda x: while_loop(
            lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5 + 1), (torch.tensor(0), x)
        ),
        (f32(3),),
    ),
    "scan": (lambda x: scan(lambda c, y: (c + y, c * 2), torch.zeros(3), x), (f32(5, 3),)),
    "associative_scan": (
        lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"),
        (f32(5, 3),),
    ),
    "map": (lambda x: map_rows(lambda y: y.sin() + 1, x), (f32(5, 3),)),
    "flex_attention": (
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j)) * 2,
        (f32(1, 2, 8, 4), f32(1, 2, 8, 4), f32(1, 2, 8, 4)),
    ),
    "flex_attention_plain": (lambda q: flex_attention(q, q, q), (f32(1, 2, 8, 4),)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", HIGHER)
def test_a_higher_order_operator_is_called_as_eager_calls_it(name: str) -> None:
    function, inputs = HIGHER[name]
    assert_as_eager(compiled(function, fullgraph=True), function, inputs)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_gradient_goes_through_the_branch_that_was_taken(sign: float) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos() * 3, (x,)) + x

    x = sign * torch.tensor([0.5, 1.5])
    mine = gradients(compiled(function, fullgraph=True), [x.clone().requires_grad_()])
    assert_same(mine, gradients(function, [x.clone().requires_grad_()]))


def test_a_checkpointed_function_draws_the_same_random_numbers_again() -> None:
    def function(x: torch.Tensor) -> Any:
        def block(y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(y * 3, 0.5)

        return checkpoint(block, x, use_reentrant=False)

    x = torch.ones(64, requires_grad=True)
    out = compiled(function)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())
    assert set(out.tolist()) == {0.0, 6.0}


# -- custom operators ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def custom() -> Iterator[Any]:
    """A library of operators: a pure one, one that writes, one with a result of unknown size."""
    library = torch.library.Library("tcdebug_test", "FRAGMENT")
    library.define("scaled(Tensor x, float by) -> Tensor")
    library.define("increment_(Tensor(a!) x) -> ()")
    library.define("places(Tensor x) -> Tensor")
    library.impl("scaled", lambda x, by: x * by, "CPU")
    library.impl("increment_", lambda x: [x.add_(1), None][1], "CPU")
    library.impl("places", lambda x: x.nonzero()[:, 0].clone(), "CPU")
    torch.library.register_fake("tcdebug_test::scaled", lambda x, by: torch.empty_like(x))
    torch.library.register_fake("tcdebug_test::increment_", lambda x: None)
    torch.library.register_fake(
        "tcdebug_test::places",
        lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64),
    )

    def keep(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
        ctx.by = inputs[1]

    torch.library.register_autograd(
        "tcdebug_test::scaled", lambda ctx, g: (g * ctx.by, None), setup_context=keep
    )
    yield torch.ops.tcdebug_test
    library._destroy()


def test_a_custom_operator_and_its_gradient(custom: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return custom.scaled(x.sin() * 2, 3.0) + 1  # type: ignore[no-any-return] # any operator

    x = f32(3, 4)
    mine = gradients(compiled(function, fullgraph=True), [x.clone().requires_grad_()])
    assert_same(mine, gradients(function, [x.clone().requires_grad_()]))


def test_a_custom_operator_that_writes_keeps_its_order(custom: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        custom.increment_(y)
        z = y * 3
        custom.increment_(y)
        custom.increment_(x[0])
        return y, z, x.sum()

    assert_as_eager(compiled(function, fullgraph=True), function, [f32(3, 4)])


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_custom_operator_of_unknown_size(custom: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return custom.places((x > 0).float()) * 2  # type: ignore[no-any-return] # any operator

    once = compiled(function, fullgraph=True)
    for x in (f32(8), -f32(8)):
        assert_as_eager(once, function, [x])


# -- tensors that kernels cannot read -----------------------------------------------------------

EXOTIC: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "sparse": (lambda x, y: torch.sparse.mm(x, y) * 2, [f32(3, 4).to_sparse(), f32(4, 5)]),
    "compressed": (lambda x, y: (x @ y).relu(), [f32(3, 4).to_sparse_csr(), f32(4, 5)]),
    "quantized": (
        lambda x: x.dequantize() + 1,
        [torch.quantize_per_tensor(f32(3, 4), 0.1, 2, torch.quint8)],
    ),
    "complex": (
        lambda x: (x.conj().imag + 1, (x * 2).abs(), torch.view_as_real(x) * 2),
        [torch.view_as_complex(f32(3, 4, 2))],
    ),
    "unsigned": (lambda x: x.to(torch.int32) + 1, [torch.tensor([1, 2], dtype=torch.uint16)]),
    "eight_bits": (lambda x: x.float() * 2, [f32(4).to(torch.float8_e4m3fn)]),
}


@pytest.mark.parametrize("name", EXOTIC)
def test_tensors_that_kernels_cannot_read_are_left_to_aten(name: str) -> None:
    function, inputs = EXOTIC[name]
    assert_same(compiled(function)(*inputs), function(*inputs))


def test_a_write_through_another_dtype_is_seen() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x.clone()
        y.view(torch.int32).add_(1)
        x.view(torch.int32).bitwise_and_(0x7FFFFFFF)
        return y * 1.0, x + 1

    assert_as_eager(compiled(function), function, [f32(4, 4)], exact=True)
