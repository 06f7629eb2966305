"""fuse.equal_elements: equal elements are reduced once, and so are equal rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled
from property_settings import property_settings
from stages import capture, scheduled_graph
from traced_on_cuda import triton_of

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Reduction
from tcdebug.compiler.schedule.splitting.equal_elements import reduce_equal_elements_once

Function = Callable[[torch.Tensor], Any]
ROW = torch.randn(7, 300)
MANY = ROW.unsqueeze(0).expand(40, 7, 300)
INF = float("inf")


def reduced(function: Function, x: torch.Tensor) -> list[tuple[int, int]]:
    """The results of each reduction, and the elements of each result."""
    (schedule,) = capture(function, x, dynamic=False).schedules
    nodes = (n for k in schedule.kernels() for n in k.nodes if isinstance(n, Reduction))
    return [(points(n.axes), points(n.reduced)) for n in nodes]


def points(axes: tuple[Any, ...]) -> int:
    count = 1
    for axis in axes:
        count *= axis.size.constant
    return count


CASES: dict[str, tuple[Function, list[tuple[int, int]]]] = {
    "a sum over equal elements": (lambda x: x.sum(0), []),
    "a maximum over equal elements": (lambda x: x.amax(0), []),
    "the place of a maximum": (lambda x: x.argmax(0), []),
    "a sum over equal elements and others": (lambda x: x.sum((0, 2)), [(7, 300)]),
    "a maximum over equal elements and others": (lambda x: x.amax((0, 1)), [(300, 7)]),
    "the place of a maximum in equal rows": (
        lambda x: x.flatten(1).argmax(1),
        [(1, 2100), (1, 2100)],
    ),
    "a product": (lambda x: (x * 1e-3 + 1).prod(0), [(2100, 40)]),
    "a sum of equal rows": (lambda x: x.sum(2), [(7, 300)]),
    "a sum of few equal elements": (lambda x: x[:, :, :9].sum(2), [(280, 9)]),
    "a sum of functions of equal elements": (lambda x: (x.sin() * 2 + 1).sum((0, 1)), [(300, 7)]),
    "elements that differ": (lambda x: (x + x.cumsum(0)).sum(0), [(2100, 40)]),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_elements_are_reduced_once(name: str) -> None:
    function, expected = CASES[name]
    assert reduced(function, MANY) == expected
    assert_as_eager(compiled(function), function, [MANY])


def test_rows_whose_elements_are_all_computed_are_all_reduced() -> None:
    assert reduced(lambda x: x.softmax(2), MANY) == [(280, 300), (280, 300)]
    assert_as_eager(compiled(lambda x: x.softmax(2)), lambda x: x.softmax(2), [MANY])


def test_a_reduction_that_stays_as_it_is_is_no_decision() -> None:
    (schedule,) = capture(lambda x: x.softmax(2), MANY, dynamic=False).schedules
    gate = Gate()
    reduce_equal_elements_once(scheduled_graph(schedule), gate)
    assert [d for d in gate.decisions if d.unit == "fuse.equal_elements"] == []


def test_every_element_is_reduced_with_the_unit_off() -> None:
    (schedule,) = capture(
        lambda x: x.sum((0, 2)),
        MANY,
        dynamic=False,
        toggles=Toggles(off=frozenset(("fuse.equal_elements",))),
    ).schedules
    (kernel,) = schedule.kernels()
    assert points(kernel.inner) == 12_000


def test_the_gradient_of_a_sum_is_not_added_up() -> None:
    bias = torch.randn(300, requires_grad=True)
    fast = compiled(lambda x, b: ((x + b) * 3).sum())
    fast(torch.randn(64, 300), bias).backward()
    torch.testing.assert_close(bias.grad, torch.full((300,), 192.0))


@pytest.mark.parametrize("value", [-0.0, INF, -INF, float("nan"), 3e38])
def test_special_values_are_reduced_as_in_eager(value: float) -> None:
    x = torch.tensor([[value, 1.0]]).expand(5, 2)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.amax(0), x.mean(0), x.argmin(0), x.sum(), x.sum(0).signbit()

    assert_as_eager(compiled(function), function, [x])


def test_an_update_of_a_copied_result_changes_the_copy_only() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sums = x.sum(2)
        return sums.clone().index_add_(0, i, sums[:3]), sums * 2

    assert_as_eager(compiled(function), function, [MANY, torch.tensor([0, 5, 0])])


REDUCTIONS: dict[str, Callable[[torch.Tensor, list[int]], Any]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "var_mean": torch.var_mean,
    "logsumexp": torch.logsumexp,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
    "any": lambda x, dim: (x > 1).any(dim[0]),
    "count": lambda x, dim: (x > 0).sum(dim),
    "normalised": lambda x, dim: (x - x.mean(dim, keepdim=True)) / (x.std(dim, keepdim=True) + 1),
}


@property_settings(examples=40)
@given(
    st.sampled_from(sorted(REDUCTIONS)),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    st.lists(st.sampled_from([2, 3, 65]), min_size=2, max_size=4),
    st.data(),
)
def test_reductions_of_expanded_tensors_are_those_of_eager(
    name: str, dtype: torch.dtype, size: list[int], data: st.DataObject
) -> None:
    dims = st.sets(st.integers(0, len(size) - 1), min_size=1)
    over, equal = sorted(data.draw(dims)), data.draw(dims)
    own = [1 if d in equal else n for d, n in enumerate(size)]
    x = torch.randn(own, dtype=torch.float64).to(dtype).expand(size)
    torch._dynamo.reset()
    assert_as_eager(
        compiled(lambda x: REDUCTIONS[name](x, over)), lambda x: REDUCTIONS[name](x, over), [x]
    )


def test_a_gpu_reduces_distinct_rows_of_an_expanded_tensor() -> None:
    def of_rows() -> tuple[Function, tuple[torch.Tensor, ...]]:
        x = torch.empty_strided((704, 90_001), (0, 1), device="cuda")
        return lambda x: torch.var_mean(x, 1), (x,)

    sizes = [points(k.flat.outer) for k in triton_of(of_rows).kernels.values()]
    assert max(sizes) == 21
