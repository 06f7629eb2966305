"""Empty and 0-d tensors, strides, aliases and mutation, all as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import assert_as_eager, compiled
from programs import f32, i64

# -- empty and 0-d ------------------------------------------------------------------------------


def test_a_sum_over_an_empty_axis_is_zero_and_a_product_is_one() -> None:
    total, product = compiled(lambda x: (x.sum(1), x.prod(1)))(torch.empty(3, 0))
    assert total.tolist() == [0.0, 0.0, 0.0]
    assert product.tolist() == [1.0, 1.0, 1.0]


def test_a_mean_over_an_empty_axis_is_nan() -> None:
    assert compiled(lambda x: x.mean() * 1)(torch.empty(0)).isnan()


def test_any_of_an_empty_axis_is_false_and_all_is_true() -> None:
    some, every = compiled(lambda x: (x.any(1), x.all(1)))(torch.empty(2, 0, dtype=torch.bool))
    assert some.tolist() == [False, False]
    assert every.tolist() == [True, True]


EMPTY: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "pointwise": (lambda x: (x + 1).exp(), [torch.empty(0, 3)]),
    "view": (lambda x: x.view(0, 5) + 1, [torch.empty(3, 0)]),
    "reshape": (lambda x: x.reshape(2, 0, 7) * 2, [torch.empty(3, 0)]),
    "flatten": (lambda x: x.flatten() + 1, [torch.empty(0, 4)]),
    "cat": (lambda x, y: torch.cat([x, y]) * 2, [torch.empty(0, 3), f32(2, 3)]),
    "cat_legacy": (lambda x, y: torch.cat([x, y]) * 2, [torch.empty(0), f32(2, 3)]),
    "pad": (lambda x: torch.nn.functional.pad(x, (1, 1)), [torch.empty(2, 0)]),
    "index": (lambda x, i: x[i] + 1, [f32(4, 3), torch.empty(0, dtype=torch.int64)]),
    "sum_of_rows": (lambda x: x.sum(0), [torch.empty(0, 3)]),
    "matmul": (lambda x, y: x @ y + 1, [torch.empty(3, 0), torch.empty(0, 4)]),
    "softmax": (lambda x: torch.softmax(x, -1), [torch.empty(0, 4)]),
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, (4,)), [torch.empty(0, 4)]),
    "amax_of_columns": (lambda x: x.amax(1), [torch.empty(0, 4)]),
    "argmax_of_columns": (lambda x: x.argmax(1), [torch.empty(0, 4)]),
    "sum_over_nothing": (lambda x: x.view(0, 5).sum(0), [torch.empty(3, 0)]),
    "zero_divisor": (lambda x, y: x // y, [i64(9, 0, 3), i64(1, 3)]),
    "slice": (lambda x: x[5:] * 2, [f32(4)]),
    "stack": (lambda x: (x.tril(), torch.stack([x, x], 3)), [torch.empty(17, 3, 0)]),
    # a constant that must be computed, in a nest whose outer loop has no iterations
    "rounded_constant": (
        lambda x, y: torch.ldexp(x, y),
        [torch.empty(0, 1, 3, dtype=torch.bfloat16), torch.empty(0, 10, 3, dtype=torch.bfloat16)],
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_tensors_are_supported(name: str) -> None:
    function, inputs = EMPTY[name]
    assert_as_eager(compiled(function), function, inputs)


ZERO_D: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: x * 2 + x.sin(),
    "reductions": lambda x: (x.sum(), x.amax(), x.argmax(), x.mean(), x.prod(0)),
    "softmax": lambda x: torch.softmax(x, 0),
    "views": lambda x: (x.unsqueeze(0).expand(3) * 1, x.view(1, 1) + 1, x.reshape(-1) + 1),
    "stack": lambda x: torch.stack([x, x * 2]),
    "scalar": lambda x: x + torch.tensor(2),
    "broadcast": lambda x: x * torch.ones(3, 4),
    "cumsum": lambda x: x.cumsum(0) + 1,
    "var": lambda x: x.var(correction=0),
    "gather": lambda x: x.gather(0, torch.tensor(0)) + x.index_select(0, torch.tensor([0])),
    "take": lambda x: x.take(torch.tensor(0)) + x.take(torch.tensor([[0], [-1]])),
    "copysign": lambda x: x.copysign(-2.0),
}


@pytest.mark.parametrize("name", ZERO_D)
def test_zero_dimensional_tensors_are_supported(name: str) -> None:
    assert_as_eager(compiled(ZERO_D[name]), ZERO_D[name], [torch.tensor(1.5)])


# -- strides ------------------------------------------------------------------------------------


def layouts() -> dict[str, torch.Tensor]:
    base = f32(2, 3, 4, 5)
    return {
        "contiguous": base,
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base.transpose(1, 3),
        "sliced": f32(4, 3, 4, 10)[::2, :, :, ::2],
        "offset": f32(3, 3, 4, 5)[1:],
        "expanded": f32(2, 1, 4, 1).expand(2, 3, 4, 5),
        "permuted": f32(5, 4, 3, 2).permute(3, 1, 2, 0),
        "ones": f32(2, 1, 1, 5),
    }


STRIDED: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: x.exp() + 1,
    "two_operands": lambda x: x * x.flip(0) + x.contiguous(),
    "sum_channels": lambda x: x.sum(1),
    "sum_spatial": lambda x: x.sum((2, 3), keepdim=True),
    "argmax_all": lambda x: x.argmax(),
    "softmax": lambda x: x.softmax(1),
    "clone": lambda x: (x.clone(), x.contiguous(), torch.empty_like(x).fill_(2)),
    "reshape": lambda x: x.reshape(x.shape[0], -1) + 1,
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "conversion": lambda x: x.double(),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[2:]),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", STRIDED)
def test_results_have_the_values_and_strides_of_eager_in_every_layout(name: str) -> None:
    def of_each(*inputs: torch.Tensor) -> Any:
        return [STRIDED[name](x) for x in inputs]

    assert_as_eager(compiled(of_each), of_each, [*layouts().values()])


def test_a_convolution_keeps_channels_last() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.nn.functional.conv2d(x, w))

    x = f32(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    w = f32(4, 3, 3, 3).contiguous(memory_format=torch.channels_last)
    assert compiled(function)(x, w).is_contiguous(memory_format=torch.channels_last)
    assert_as_eager(compiled(function), function, [x, w])


# -- aliases ------------------------------------------------------------------------------------


def test_a_view_of_an_input_shares_its_memory() -> None:
    x = f32(3, 4)
    row, flat = compiled(lambda t: (t[1], t.view(-1)))(x)
    row.zero_()
    assert x[1].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert flat.data_ptr() == x.data_ptr()


def test_an_input_that_is_returned_is_itself() -> None:
    x = f32(3)
    same, changed = compiled(lambda t: (t, t + 1))(x)
    assert same is x
    assert changed.data_ptr() != x.data_ptr()


def test_outputs_that_share_memory_in_eager_share_it() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y.t(), y[0]

    whole, turned, row = compiled(function)(f32(3, 4))
    whole.zero_()
    assert turned.sum() == 0
    assert row.sum() == 0


def test_outputs_that_do_not_share_memory_in_eager_do_not() -> None:
    def function(x: torch.Tensor) -> Any:
        return x + 1, x + 1, x.clone(), (x * 1).clone()

    x = f32(3)
    results = compiled(function)(x)
    assert len({r.data_ptr() for r in (*results, x)}) == 5


def test_views_of_equal_tensors_do_not_share_memory_if_eager_has_two_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        e = x.exp()
        medians = x.median(0).values, x.median(0).values
        copies = e.clone().view(1, 3), e.clone().view(3, 1), e.view(3, 1)
        return *medians, *copies, x.exp().view(1, 3), (x * 1).view(3, 1), (x - 0).unsqueeze(0)

    x = f32(3)
    results = compiled(function)(x)
    assert len({r.untyped_storage().data_ptr() for r in (*results, x)}) == 9


def test_memory_of_a_returned_view_is_not_reused() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        return x.sin().t(), (w @ w).cos()

    assert_as_eager(compiled(function), function, [f32(4, 4), f32(4, 4) + 1])


def test_one_tensor_passed_twice() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return x * y

    x, twin = f32(3), f32(3)
    found = compiled(function)(x, x)
    assert torch.equal(found, function(twin, twin))
    assert torch.equal(x, twin)


def test_overlapping_inputs_one_of_which_is_written() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.mul_(2)
        return y + 1

    mine, eager = f32(6), f32(6)
    found = compiled(function)(mine[:4], mine[2:])
    assert torch.equal(found, function(eager[:4], eager[2:]))
    assert torch.equal(mine, eager)


# -- mutation -----------------------------------------------------------------------------------

MUTATIONS: dict[str, Callable[..., Any]] = {
    "add_": lambda x, y: x.add_(y),
    "mul_and_return_other": lambda x, y: (x.mul_(2), y + x)[1],
    "copy_": lambda x, y: x.copy_(y * 2),
    "copy_converts": lambda x, y: x.copy_(y.double()),
    "view_written": lambda x, y: x[1:].zero_().sum() + y,
    "row_assigned": lambda x, y: x.__setitem__(0, y[1]),
    "columns_assigned": lambda x, y: x.__setitem__((slice(None), slice(0, 2)), 7.0),
    "masked_assigned": lambda x, y: x.__setitem__(y > 0, 0.0),
    "transposed_written": lambda x, y: x.t().add_(1)[0] * 2,
    "read_before_and_after": lambda x, y: (x.sum(), x.exp_(), x.sum()),
    "two_inputs": lambda x, y: (x.add_(1), y.sub_(x))[0].sum(),
    "written_twice": lambda x, y: x.add_(1).mul_(x).sub_(y),
    "local_only": lambda x, y: (x * 1).add_(5) + y,
    "fill_": lambda x, y: x.fill_(3.5).add(y),
    "index_put_": lambda x, y: x.index_put_((torch.tensor([0, 2]),), y[:2]),
    "scatter_add_": lambda x, y: x.scatter_add_(0, torch.zeros(1, 4, dtype=torch.int64), y[:1]),
    "relu_": lambda x, y: torch.relu_(x) + y,
    "out": lambda x, y: torch.add(y, y, out=x),
    "swap": lambda x, y: (x.copy_(y), y.copy_(x + 1))[1] * 1,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_inputs_are_written_to_as_in_eager(name: str) -> None:
    assert_as_eager(compiled(MUTATIONS[name]), MUTATIONS[name], [f32(3, 4), f32(4, 3).t() + 1])


def test_running_statistics_of_batch_norm_are_updated() -> None:
    def function(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    inputs = [f32(4, 3, 5, 5), torch.zeros(3), torch.ones(3)]
    assert_as_eager(compiled(function), function, inputs)


def test_a_write_through_a_view_of_a_copy_does_not_change_the_input() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].zero_()
        return y

    assert_as_eager(compiled(function), function, [f32(3, 4)])


# -- indices out of range -----------------------------------------------------------------------


@pytest.mark.parametrize("place", [6, -7])
def test_an_index_out_of_range_is_an_error(place: int) -> None:
    f = compiled(lambda x, i: x[i] + 1)
    assert torch.equal(f(f32(6), torch.tensor([5, -6])), f32(6)[[5, 0]] + 1)
    with pytest.raises(IndexError, match="out of range"):
        f(f32(6), torch.tensor([0, place]))


def test_a_guarded_index_out_of_range_is_not_read() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x[i], (2, 2)) + i64(9, 7)

    assert_as_eager(compiled(function), function, [f32(6), i64(6, 3)])
