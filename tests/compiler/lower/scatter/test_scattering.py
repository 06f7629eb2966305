"""Scatters: pointwise ones, ones whose points run in order, and diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from externs import compiled_with_reasons, reasons
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled, gradients
from programs import f32, i64
from property_settings import property_settings
from stages import at_stage
from torch.nn import functional as F

SCATTERS: dict[str, Callable[..., Any]] = {
    "value": lambda x, i: x.scatter(1, i, 1.5),
    "source": lambda x, i: x.scatter(1, i, x * 2),
    "add": lambda x, i: x.scatter_add(1, i, x * 2),
    "fewer_rows": lambda x, i: x.scatter(1, i[:2], -1.0),
    "middle": lambda x, i: x.expand(3, 4, 5).scatter(-2, i[:3, :, None].expand(3, 1, 5), 7.0),
    "whole_number": lambda x, i: (x * 9).long().scatter(1, i, 3),
    "half": lambda x, i: x.bfloat16().scatter_add(1, i, x.bfloat16()),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_one_element_per_row_is_replaced(name: str) -> None:
    function = SCATTERS[name]
    inputs = [f32(4, 5), i64(4, 4, 1)]
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, inputs, exact=True)
    assert left == {}


def test_a_position_out_of_bounds_is_an_error() -> None:
    with pytest.raises(Exception, match="out of"):
        compiled(SCATTERS["value"])(f32(4, 5), torch.full((4, 1), 5))


ROWS = torch.tensor([3, 0, -1, 3, 3, 1])
IN_ORDER: dict[str, Callable[..., Any]] = {
    "value": lambda x, i, y: x.scatter(0, i[:, :3], 1.5),
    "source": lambda x, i, y: x.scatter(0, i, y * 2).sin(),
    "add": lambda x, i, y: x.scatter_add(0, i, y),
    "add_along_the_last": lambda x, i, y: x.t().scatter_add(1, i.t(), y.t()),
    "largest": lambda x, i, y: x.scatter_reduce(0, i, y, "amax"),
    "product": lambda x, i, y: x.scatter_reduce(0, i, y, "prod"),
    "rows": lambda x, i, y: x.index_put((ROWS,), y[:6]),
    "sums_of_rows": lambda x, i, y: x.index_put((ROWS,), y[:6] - 1, accumulate=True) * 2,
    "one_value": lambda x, i, y: x.index_put((ROWS, i[:6, 0]), y[0, 0], accumulate=True),
    "columns": lambda x, i, y: x.index_add(1, i[:, 0], y[:8, :4].t(), alpha=3),
    "copied": lambda x, i, y: x.index_copy(0, ROWS[:2].abs(), y[:2]),
    "whole_numbers": lambda x, i, y: (x * 9).long().index_add(0, i[:, 1], (y * 9).long()),
    "flags": lambda x, i, y: (x > 0).index_put((ROWS,), y[:6] > 0),
    "half": lambda x, i, y: x.half().scatter_add(0, i, y.half()),
    "none": lambda x, i, y: x.index_add(0, i[:0, 0], y[:0]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", IN_ORDER)
def test_all_values_for_one_element_are_used(name: str) -> None:
    """The last replacement wins. Eager also processes tensors this small in order."""
    function, inputs = IN_ORDER[name], [f32(4, 5), i64(4, 8, 5), f32(8, 5)]
    once, left = compiled_with_reasons(function, dynamic=True)
    assert_as_eager(once, function, inputs)
    assert left == {}


@property_settings(15)
@given(
    st.lists(st.integers(-4, 3), min_size=1, max_size=9),
    st.lists(st.integers(-3, 2), min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from(["front", "both", "apart"]),
)
def test_indices_repeat_and_count_from_the_end(
    first: list[int], second: list[int], accumulate: bool, form: str
) -> None:
    """Compared with a loop over the points."""
    count = min(len(first), len(second))
    i, j = torch.tensor(first[:count]), torch.tensor(second[:count])
    place = {"front": (i,), "both": (i, j), "apart": (i, slice(None), j)}[form]
    positions = [None if isinstance(p, slice) else p for p in place]
    x = f32(4, 3, 2) if form != "apart" else f32(4, 2, 3)
    values = f32(count, *x[place].shape[1:])
    expected = x.clone()
    for k in range(count):
        at = tuple(p if isinstance(p, slice) else int(p[k]) for p in place)
        expected[at] = values[k] + (expected[at] if accumulate else 0)

    torch._dynamo.reset()
    once = at_stage("scheduled", torch.ops.aten.index_put.default)
    torch.testing.assert_close(once(x, positions, values, accumulate), expected)


def test_the_gradient_of_a_gather_is_summed_in_loops() -> None:
    def function(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, w, padding_idx=2) * 2 + w[i].sin() + w.gather(0, i[:, None] % 3)

    w, i = f32(6, 4).requires_grad_(), i64(6, 9)
    once, left = compiled_with_reasons(function)
    mine = gradients(once, [w.detach().requires_grad_(), i])
    theirs = gradients(function, [w.detach().requires_grad_(), i])
    torch.testing.assert_close(mine, theirs)
    assert "aten.embedding_dense_backward.default" not in left


def test_half_precision_sums_are_rounded_once() -> None:
    ones = torch.ones(4000, dtype=torch.bfloat16)
    once = compiled(lambda x, i, y: x.index_add(0, i, y))
    assert once(ones[:1] * 0, torch.zeros(4000, dtype=torch.int64), ones).item() == 4000


LEFT: dict[str, tuple[Callable[..., Any], str]] = {
    "aten.index_put.default": (
        lambda x, i, y: x.index_put((x < 99,), y.flatten()[:20]),
        "a mask as an index, with a value for each of its elements",
    ),
    "aten.scatter_reduce.two": (
        lambda x, i, y: x[0, 0].scatter_reduce(0, i[:2, 0] * 0, y[:2, 0], "mean"),
        "several elements for a 0-d tensor",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_scatter_that_is_not_lowered_has_a_reason(name: str) -> None:
    function, reason = LEFT[name]
    assert reasons(function, f32(4, 5), i64(4, 8, 5), f32(8, 5))[name] == reason


def test_the_memory_of_a_scatter_lives_as_long_as_its_values() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.index_add(0, i, x[:3])
        z = (y @ y.t()).sin()
        return y * z.sum(), (x @ x.t()).cos() + z

    assert_as_eager(compiled(function), function, [f32(4, 4), i64(4, 3)])


def test_the_gradient_of_a_cross_entropy_has_no_extern_calls() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y, ignore_index=3)

    x, y = f32(6, 10).requires_grad_(), i64(10, 6)
    once, left = compiled_with_reasons(function)
    mine = gradients(once, [x.detach().requires_grad_(), y])
    theirs = gradients(function, [x.detach().requires_grad_(), y])
    torch.testing.assert_close(mine, theirs)
    assert left == {}


@pytest.mark.parametrize(
    ("offset", "first", "second"), [(0, 0, 1), (2, 0, 1), (-1, 0, 1), (1, 2, 0)]
)
def test_a_diagonal_is_replaced(offset: int, first: int, second: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        new = x.diagonal(offset, first, second) * 3 + 1
        return torch.diagonal_scatter(x, new, offset, first, second)

    inputs = [f32(4, 6, 5)]
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, inputs, exact=True)
    assert left == {}


def _updating(name: str, *given: Any, **options: Any) -> Callable[..., Any]:
    def update(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        getattr(x, name)(*(g(i, y) if callable(g) else g for g in given), **options)
        return x.sin().contiguous()

    return update


UPDATES: dict[str, Callable[..., Any]] = {
    "value": _updating("scatter_", 0, lambda i, y: i[:, :3], 1.5),
    "source": _updating("scatter_", 1, lambda i, y: i[:1, :1] % 3, lambda i, y: y),
    "add": _updating("scatter_add_", 0, lambda i, y: i, lambda i, y: y * 2),
    "largest": _updating("scatter_reduce_", 0, lambda i, y: i, lambda i, y: y, "amax"),
    "rows": _updating("index_put_", (ROWS,), lambda i, y: y[:6]),
    "sums_of_rows": _updating("index_put_", (ROWS,), lambda i, y: y[:6] + 1, accumulate=True),
    "added": _updating("index_add_", 0, ROWS.abs(), lambda i, y: y[:6], alpha=2),
    "copied": _updating("index_copy_", 0, ROWS[:2].abs(), lambda i, y: y[:2].exp()),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", UPDATES)
def test_a_kernel_stores_into_elements_of_an_input(name: str, dynamic: bool) -> None:
    function = UPDATES[name]
    once, left = compiled_with_reasons(function, dynamic=dynamic)
    for x in (f32(4, 4), f32(6, 5).t()[:4, :4]):
        assert_as_eager(once, function, [x, i64(4, 8, 4), f32(8, 4)])
    assert dynamic or left == {}


READ_ELSEWHERE: dict[str, Callable[..., Any]] = {
    "values": lambda x, i, y: x.index_put_((i[:4, 0],), x.flip(0)),
    "places": lambda x, i, y: x.index_put_((x[:, 0].long(),), y[:4]),
    "view": lambda x, i, y: x[1:].index_add_(0, i[:2, 0] % 3, y[:2]),
    "itself": lambda x, i, y: x.index_put_((i[:4, 0],), x * 2, accumulate=True),
}


@pytest.mark.parametrize("name", READ_ELSEWHERE)
def test_an_input_that_is_both_read_and_written_is_as_in_eager(name: str) -> None:
    function = READ_ELSEWHERE[name]
    assert_as_eager(compiled(function), function, [f32(4, 4).abs(), i64(4, 8, 4), f32(8, 4)])


def test_half_precision_sums_into_an_input_are_left_to_aten() -> None:
    def f(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_add_(0, i, y)
        return x + 1

    inputs = [f32(4, 3).bfloat16(), ROWS.abs(), f32(6, 3).bfloat16()]
    found = reasons(f, *inputs)
    assert found["aten.index_add_.default"] == "sums in memory of type torch.bfloat16"


def test_an_index_out_of_range_leaves_an_input_unchanged() -> None:
    x, y = f32(5, 4), f32(1, 4)
    before = x.clone()
    places = compiled(lambda x, i, y: x.index_put_((i,), y))
    places(x, torch.tensor([1]), before[1:2])
    with pytest.raises(IndexError, match="out of range"):
        places(x, torch.tensor([5]), y)
    assert torch.equal(x, before)


REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def combined(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Scatters that combine values, by element and by slice, with and without old values."""
    row = i[0, :4] % 4
    found = [
        x.scatter_reduce(0, i % 4, y, kind, include_self=own)
        for kind in REDUCTIONS
        for own in (True, False)
    ]
    found += [
        x.index_reduce(1, row, y[:4, :4], kind, include_self=own)
        for kind in REDUCTIONS[1:]
        for own in (True, False)
    ]
    return [*found, x.scatter(0, i % 4, y, reduce="add"), x.scatter(0, i % 4, 3, reduce="multiply")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_values_for_one_element_are_combined_as_in_eager(dtype: torch.dtype) -> None:
    x, y = (f32(4, 5) * 3).to(dtype), (f32(8, 5) * 3).to(dtype)
    if dtype.is_floating_point:
        x[0, 0], y[1, 1] = float("nan"), float("-inf")
    inputs = [x, i64(4, 8, 5), y]
    torch._dynamo.reset()
    once, left = compiled_with_reasons(combined)
    assert_as_eager(once, combined, inputs)
    assert left == {}


def test_masks_select_elements_and_scalars_are_0d_sources() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        number, at = x[0, 0], torch.tensor(0)
        return [
            x.index_put((x > 0,), y[0, 0]),
            x.index_put((x > 0,), y[0, 0], accumulate=True),
            x.index_put((x[:, 0] > 0,), y[0]),
            x.masked_scatter(x > 0, y),
            x.put(at[None] + 3, y[0, :1], accumulate=True),
            number.index_add(0, at, y[0, 0]),
            number.index_copy(0, at[None], y[0, :1]),
            number.scatter(0, at, y[0, 0]),
            number.scatter_reduce(0, at, y[0, 0], "amax"),
            number.index_add(0, at, y[0, 0], alpha=3),
            number.index_reduce(0, at, y[0, 0], "mean"),
            number.index_reduce(0, at, y[0, 0], "prod", include_self=False),
        ]

    inputs = [f32(4, 5), f32(8, 5)]
    torch._dynamo.reset()
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, inputs)
    assert left == {}
