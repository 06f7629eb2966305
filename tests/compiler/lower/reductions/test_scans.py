"""Scans: results and dtypes of eager, and the nodes that share a loop with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels_as_eager
from externs import reasons
from judge import assert_as_eager, assert_same, compiled
from programs import f32, i64, swizzled
from stages import capture

from tcdebug.compiler.ir.graph import Scan
from tcdebug.compiler.schedule.kernel import Kernel

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rows": lambda x: (x * 0.5).cumsum(-1) + 1,
    "columns": lambda x: x.cumsum(0).relu(),
    "product": lambda x: x.cumprod(1),
    "twice": lambda x: x.cumsum(0).cumsum(1),
    "of_a_transpose": lambda x: x.t().cumsum(-1),
    "counts": lambda x: (x > 0).cumsum(1),
    "integers": lambda x: x.int().cumsum(0),
    "in_bfloat16": lambda x: x.cumsum(0, dtype=torch.bfloat16),
    "of_half": lambda x: x.half().cumsum(1),
    "in_double": lambda x: x.cumprod(0, dtype=torch.float64),
    "narrow_integers": lambda x: (x * 50).to(torch.int8).cumsum(1, dtype=torch.int8),
    "of_a_number": lambda x: x.sum().cumsum(0),
    "extremes_and_logarithms": lambda x: (
        (x * 2).cummax(-1),
        x.cummin(0),
        (x * 3).int().cummax(1),
        (x > 0).cummin(1),
        x.sum().cummax(0),
        (x * 9).logcumsumexp(1) * 2,
        x.half().logcumsumexp(0),
    ),
}
SIZES = ((3, 5), (33, 70), (1, 9), (0, 4), (4, 0), (6, 1))


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_scan_of_any_size_agrees_with_eager(name: str) -> None:
    def of_each(*inputs: torch.Tensor) -> list[Any]:
        return [FUNCTIONS[name](x) for x in inputs]

    torch._dynamo.reset()
    assert_as_eager(compiled(of_each), of_each, [f32(*size) for size in SIZES])


def test_special_values_propagate_as_in_eager() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, inf, 2.0, -inf, 3.0], [1.0, 0.0, nan, 0.0, -0.0]])
    for function in (lambda x: x.cumsum(1), lambda x: x.cumprod(1)):
        torch._dynamo.reset()
        assert_as_eager(compiled(function), function, [x], exact=True)


def test_the_last_of_equal_extremes_wins_and_a_nan_wins_over_all() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor(
        [[1.0, 2.0, 2.0, 0.0, -0.0, nan, 3.0, nan], [0.0, -0.0, -inf, inf, inf, 1, 2, 3]]
    )
    for function in (lambda x: x.cummax(1), lambda x: x.cummin(1), lambda x: x.cummax(0)):
        torch._dynamo.reset()
        assert_as_eager(compiled(function), function, [x], exact=True)
    places = compiled(lambda x: x.cummax(1))(x).indices.tolist()
    assert places == [[0, 1, 2, 2, 2, 5, 5, 7], [0, 1, 1, 3, 4, 4, 4, 4]]


def test_logarithms_of_running_sums_keep_infinities_and_do_not_overflow() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor(
        [
            [-inf, -inf, 0.0, 0.0, 700.0, inf],
            [1e30, 1e30, -inf, inf, -inf, 1],
            [1, nan, 1, 2, inf, 3],
        ]
    )
    torch._dynamo.reset()
    assert_as_eager(compiled(lambda x: x.logcumsumexp(1)), lambda x: x.logcumsumexp(1), [x])
    assert reasons(lambda x: (x.logcumsumexp(1), x.cummax(0), x.cummin(1)), x) == {}


def test_a_long_scan_is_as_accurate_as_eager() -> None:
    x = f32(200_000).abs()
    assert torch.equal(compiled(lambda x: x.cumsum(0))(x), x.cumsum(0))


def test_one_kernel_serves_scans_of_many_sizes() -> None:
    torch._dynamo.reset()
    f = compiled(lambda x: x.cumsum(0) * x.shape[0], dynamic=True)
    for size in ((4, 6), (9, 5), (33, 2)):
        assert_same(f(f32(*size)), f32(*size).cumsum(0) * size[0])


def kernels(function: Callable[..., Any], *inputs: torch.Tensor) -> list[list[str]]:
    """The nodes of each kernel: scan or not."""
    (schedule,) = capture(function, *inputs).schedules
    return [
        ["scan" if isinstance(node, Scan) else "other" for node in step.nodes]
        for step in schedule.steps
        if isinstance(step, Kernel)
    ]


def test_producers_and_consumers_run_in_the_loop_of_a_scan() -> None:
    assert kernels(lambda x: (x * 0.5).cumsum(-1) + 1, f32(4, 9)) == [["scan", "other"]]


def test_a_scan_shares_a_loop_with_another_scan_but_not_with_a_reduction() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.cumsum(1), x.cumprod(1), x.sum(1)

    assert sorted(nodes.count("scan") for nodes in kernels(function, f32(4, 9))) == [0, 2]
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [swizzled(4, 9)])


def test_a_scan_of_indirect_loads() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i].cumsum(0)

    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [f32(7, 3), i64(7, 5)])
    with pytest.raises(IndexError, match="out of range"):
        compiled(function)(f32(7, 3), torch.tensor([0, 9, 1, 2, 3]))


def test_a_running_sum_is_stored_in_float32() -> None:
    """It is accumulated in float64, as in eager; its states took twice the memory."""
    x = torch.randn(40, 200) * 1e4

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x.t().cumsum(0) * 0.5, (1, 1)).exp2()

    assert "double* __restrict__" not in kernels_as_eager(function, [x])
