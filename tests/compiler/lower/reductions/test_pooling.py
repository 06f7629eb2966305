"""Pooling: windows at the edge, ties, NaN, layouts, gradients, and cases left to ATen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels
from externs import compiled_with_reasons, reasons
from judge import assert_as_eager, assert_same, compiled, gradients
from programs import f32
from stages import capture
from torch.nn import functional as F
from torch_versions import needs_torch

from tcdebug.compiler.ir.cost import load_count

INF, NAN = float("inf"), float("nan")

POOLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "avg": lambda x: F.avg_pool2d(x, 2),
    "avg_padded": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_ceil": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_of_the_input_only": lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, False),
    "avg_by_five": lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5),
    "avg_1d": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "max": lambda x: F.max_pool2d(x, 2),
    "max_padded": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_dilated": lambda x: F.max_pool2d(x, 2, 1, 1, dilation=3),
    "max_places": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_and_its_gradient_are_those_of_eager(
    name: str, memory_format: torch.memory_format
) -> None:
    x = f32(2, 3, 9, 8).contiguous(memory_format=memory_format)
    torch._dynamo.reset()
    mine = gradients(compiled(POOLS[name]), [x.clone().requires_grad_()])
    assert_same(mine, gradients(POOLS[name], [x.clone().requires_grad_()]))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool3d(x, 2, 2, 1, count_include_pad=False),
        lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True),
        lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)),
    ],
    ids=["avg", "max", "adaptive"],
)
def test_pools_of_three_dimensions(pool: Callable[[torch.Tensor], Any]) -> None:
    assert_as_eager(compiled(pool), pool, [f32(2, 2, 4, 6, 4)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_max_pooling_in_a_dtype(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    x = (f32(1, 2, 7, 7) * 9).to(dtype)
    assert_as_eager(compiled(function), function, [x], exact=True)


@pytest.mark.parametrize(
    "values",
    [
        [[-INF] * 4] * 4,
        [[NAN, 1.0, 2.0, NAN], [3.0, NAN, NAN, 1.0], [0.0] * 4, [NAN] * 4],
        [[-0.0, 0.0, 0.0, -0.0], [0.0, -0.0, -0.0, 0.0], [7.0] * 4, [7.0] * 4],
        [[INF, -INF, INF, 1.0]] * 4,
    ],
    ids=["lowest", "nan", "zeros", "infinite"],
)
def test_the_position_of_equal_maxima_is_that_of_eager(values: list[list[float]]) -> None:
    def function(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)

    assert_as_eager(compiled(function), function, [torch.tensor([[values]]).float()], exact=True)


def test_a_nan_outside_a_window_does_not_affect_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 2, 2, 1, count_include_pad=False)

    x = f32(1, 1, 4, 4)
    x[..., 0, 0] = NAN
    assert compiled(function)(x).isnan().sum() == 1
    assert_as_eager(compiled(function), function, [x])


@needs_torch("2.13", "the shapes of max_pool2d have guards on odd sizes")
def test_one_compile_pools_many_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)

    once = compiled(function, dynamic=True)
    for size in ((2, 3, 9, 8), (4, 5, 7, 12), (3, 2, 10, 5)):
        with torch._dynamo.config.patch(error_on_recompile=size[0] != 2):
            assert_as_eager(once, function, [f32(*size)])


LONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "avg": lambda x: F.avg_pool2d(x, 6),
    "avg_overlapping": lambda x: F.avg_pool2d(x, (7, 5), 3),
    "avg_padded": lambda x: F.avg_pool2d(x, 7, 3, 3),
    "avg_of_the_input_only": lambda x: F.avg_pool2d(x, 6, 4, 2, True, False),
    "avg_1d": lambda x: F.avg_pool1d(x.flatten(1), 40),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 2),
    "max": lambda x: F.max_pool2d(x, 6),
    "max_overlapping": lambda x: F.max_pool2d(x, 6, 2),
    "max_padded": lambda x: F.max_pool2d(x, 9, 1, 4),
    "max_ceil": lambda x: F.max_pool2d(x, 6, 4, 0, 1, True),
    "max_dilated": lambda x: F.max_pool2d(x, (6, 5), 1, 2, dilation=2),
    "max_1d": lambda x: F.max_pool1d(x.flatten(1), 40),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 2),
    "max_places": lambda x: F.max_pool2d(x, 6, return_indices=True),
    "max_places_overlapping": lambda x: F.max_pool2d(x, 6, 3, return_indices=True),
    "adaptive_max_places": lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True),
}


def long_windows(x: torch.Tensor) -> list[Any]:
    """All of them, in one graph."""
    return [pool(x) for pool in LONG.values()]


def test_long_windows_are_combined_in_loops_as_in_eager() -> None:
    """Among equal elements, the first one wins, and the last NaN over all."""
    torch._dynamo.reset()
    once, left = compiled_with_reasons(long_windows)
    x = f32(2, 3, 12, 12).mul(4).round() / 4
    assert_as_eager(once, long_windows, [x])
    x[0, 0, 3, 4] = x[0, 0, 5, 2] = NAN
    x[0, 1], x[0, 2] = -INF, NAN
    assert_as_eager(once, long_windows, [x])
    assert left == {}


def test_long_windows_of_channels_last_tensors() -> None:
    names = ("avg", "max_overlapping", "max_places", "avg_overlapping")

    def function(x: torch.Tensor) -> list[Any]:
        return [LONG[name](x) for name in names]

    x = f32(2, 3, 12, 12).bfloat16().to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [x])


def test_gradients_of_long_windows() -> None:
    def function(x: torch.Tensor) -> list[Any]:
        names = ("avg_overlapping", "avg_of_the_input_only", "max_overlapping", "max")
        return [LONG[name](x) for name in names]

    x = f32(2, 3, 12, 12)
    mine = gradients(compiled(function), [x.clone().requires_grad_()])
    assert_same(mine, gradients(function, [x.clone().requires_grad_()]))


def test_long_windows_of_integers() -> None:
    x = torch.arange(288).reshape(2, 1, 12, 12) % 37
    assert_as_eager(compiled(LONG["max_places"]), LONG["max_places"], [x], exact=True)


def averages_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of averages over padded windows of 5 x 5."""
    return torch.ops.aten.avg_pool2d_backward(
        gradient, x, [5, 5], [1, 1], [2, 2], False, True, None
    )


@pytest.mark.parametrize(
    ("function", "inputs", "most"),
    [
        (lambda x: F.max_pool2d(x, 9, 1), [f32(1, 2, 12, 12)], 9),
        (lambda x: F.max_pool2d(x, 3, 1, 1), [f32(1, 2, 12, 12)], 3),
        (lambda x: F.avg_pool2d(x, (7, 5), 2, 1), [f32(1, 2, 12, 12)], 7),
        (lambda x: F.avg_pool3d(x, 3, 1, 1), [f32(1, 2, 6, 6, 6)], 3),
        (averages_backward, [f32(1, 2, 12, 12), f32(1, 2, 12, 12)], 5),
    ],
    ids=["long", "padded", "average", "volume", "gradient"],
)
def test_windows_that_overlap_read_the_elements_of_one_dimension(
    function: Callable[..., Any], inputs: list[torch.Tensor], most: int
) -> None:
    """A window of 9 x 9 elements reads 9 of a row, and the results of 9 rows, instead of 81."""
    (schedule,) = capture(function, *inputs, interpreted="nothing").schedules
    bodies = [node.body for kernel in schedule.kernels() for node in kernel.nodes]
    assert max(map(load_count, bodies)) == most


def test_a_window_without_neighbours_is_a_reduction() -> None:
    """It has loops over its elements, in which no index is divided or clamped."""
    text = kernels(lambda x: F.avg_pool2d(x, 8), f32(4, 8, 64, 64))
    assert "part_" in text
    apart = re.sub(r"/ 64.0f|//.*|const int64_t (first|last|begin|end)\d = .*", "", text)
    assert not re.search(r"[/%?]|index_min|index_max", apart)


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        (
            lambda x: F.max_pool2d(x, 9, 1, 4, return_indices=True),
            "positions in long windows with padding or dilation",
        ),
        (
            lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 9, 1, 4),
            "long windows with padding",
        ),
    ],
    ids=["positions", "channels last"],
)
def test_pools_that_are_left_to_aten(pool: Callable[[torch.Tensor], Any], reason: str) -> None:
    found = reasons(pool, f32(1, 2, 12, 12))
    assert found["aten.max_pool2d_with_indices.default"] == reason


def test_a_result_of_a_pool_is_not_named_as_the_next_pool() -> None:
    """The second result of the first node would be called as the second node, which is a call."""

    def function(x: torch.Tensor) -> list[Any]:
        return [
            F.max_pool2d(x, 2, return_indices=True),
            F.max_pool2d(x, 9, 3, 3, return_indices=True),
        ]

    assert_as_eager(compiled(function), function, [f32(2, 3, 11, 13)])


@pytest.mark.parametrize(
    ("window", "size", "left"),
    [
        ((2,), 12, False), ((3, 3), 12, False), ((3, 2, 1), 12, True), ((4,), 12, True),
        ((2,), 11, True),
    ],
    ids=["tiles", "tiles of 3", "overlap", "tiles of 4", "no tiles"],
)  # fmt: skip
def test_gradients_of_maxima_whose_windows_are_no_short_tiles_are_left_to_aten(
    window: tuple[int, ...], size: int, left: bool
) -> None:
    def function(x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        places = F.max_pool2d(x, *window, return_indices=True)[1]
        step, padding = (*window[1:], window[0])[0], (*window[2:], 0)[0]
        return torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, x, [window[0]] * 2, [step] * 2, [padding] * 2, [1, 1], False, places
        )

    x = f32(1, 2, size, size)
    found = reasons(function, x, torch.ones_like(F.max_pool2d(x, *window)))
    why = "windows that overlap, are long, or do not cover the input"
    assert found == ({"aten.max_pool2d_with_indices_backward.default": why} if left else {})


@pytest.mark.parametrize("size", [(5, 3), (11, 7)], ids=str)
def test_adaptive_pooling_agrees_with_eager(size: tuple[int, int]) -> None:
    def pool(x: torch.Tensor, volume: torch.Tensor) -> object:
        return (
            F.adaptive_avg_pool2d(x, size),
            F.adaptive_max_pool2d(x, size, return_indices=True),
            F.adaptive_max_pool3d(volume, (3, *size), return_indices=True),
            F.adaptive_avg_pool3d(volume, (2, *size)),
            F.max_pool3d(volume, 3, 2, 1),
        )

    x, volume = f32(2, 3, 8, 7), f32(2, 2, 5, 9, 7)
    x[0, 0, 2, 3], x[0, 1] = NAN, -INF
    torch._dynamo.reset()
    once, left = compiled_with_reasons(pool)
    assert_as_eager(once, pool, [x, volume])
    assert left == {}


OF_ZEROS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "windows of one": lambda x: F.avg_pool2d(x, 1),
    "windows of four": lambda x: F.avg_pool2d(x, 2),
    "windows beyond the edge": lambda x: F.avg_pool2d(x, 3, padding=1),
    "windows of one dimension": lambda x: F.avg_pool1d(x[0], 2),
    "windows of three dimensions": lambda x: F.avg_pool3d(x, (1, 2, 2)),
    "a negative divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=-3),
    "windows of even lengths": lambda x: F.adaptive_avg_pool2d(x, 3),
    "windows of other lengths": lambda x: F.adaptive_avg_pool2d(x, 4),
    "a fold": lambda x: F.fold(F.unfold(x, 2, stride=2), (6, 6), 2, stride=2),
    "a sum over one element": lambda x: x.sum(0),
    "a mean over one element": lambda x: x.mean((0, 1), dtype=torch.float64),
    "a sum of a number": lambda x: x[0, 0, 0, 0].sum(),
    "a sum over several": lambda x: x.sum((1, 2)),
}


@pytest.mark.parametrize("name", OF_ZEROS)
def test_a_sum_or_mean_of_negative_zeros_has_the_sign_that_it_has_in_eager(name: str) -> None:
    x = torch.full((1, 1, 6, 6), -0.0)
    wanted = OF_ZEROS[name](x)
    got = torch.compile(OF_ZEROS[name], backend="tcdebug")(x)
    assert not wanted.signbit().any()
    assert not got.signbit().any()
