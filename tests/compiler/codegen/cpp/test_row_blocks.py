"""Reductions along rows, in blocks of points that have a partial result each."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from judge import about, assert_as_eager, compiled
from torch.nn import functional as F

LENGTHS = (16, 31, 100, 511, 512, 543, 1030, 4100)


def numbers(*size: int) -> torch.Tensor:
    """Small integers, whose sums are exact."""
    return torch.randint(-9, 10, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.sampled
@pytest.mark.parametrize("length", LENGTHS)
def test_each_point_of_a_row_counts_once(length: int) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        floats = (x.sum(1), (x * x).sum(1), x.amax(1), (x + 1).amin(1), x.double().sum(1))
        signs = torch.where(x > 0, -1.0, 1.0).prod(1)
        return (*floats, signs, i.sum(1), i.to(torch.int32).amin(1), x.bfloat16().amax(1))

    x = numbers(130, length)
    assert_as_eager(compiled(function, dynamic=False), function, [x.float(), x], exact=True)


def summed(row: torch.Tensor, points: int) -> torch.Tensor:
    """The sum of at most 1024 floats in the order that accumulator.py describes."""
    whole = len(row) // points * points
    parts = torch.zeros(points)
    for block in row[:whole].view(-1, points):
        parts = parts + block
    if left := len(row) - whole:
        parts = parts + torch.cat([torch.zeros(points - left), row[whole:]])
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    return parts[0]


@pytest.mark.parametrize(("length", "points"), [(100, 16), (511, 16), (512, 32), (1000, 32)])
def test_the_order_of_a_sum_depends_only_on_the_length_of_a_row(length: int, points: int) -> None:
    x = torch.randn(150, length)
    found = compiled(lambda x: x.sum(1), dynamic=False, options={"off": ["codegen.tile"]})(x)
    assert found.tolist() == [summed(row, points).item() for row in x]


WIDE: dict[str, tuple[Callable[..., Any], torch.dtype, int, str]] = {
    "floats": (lambda x: x.sum(1), torch.float32, 100, "l < 16;"),
    "bfloat16": (lambda x: x.sum(1), torch.bfloat16, 100, "l < 32;"),
    "a mask": (lambda x: torch.where(x, 1.0, 2.0).sum(1), torch.bool, 100, "l < 32;"),
    "a row that is shorter": (lambda x: x.sum(1), torch.bfloat16, 31, "l < 16;"),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_block_fills_a_vector_of_the_narrowest_elements(name: str) -> None:
    """g++ gives all vectors of a loop the same size."""
    function, dtype, length, points = WIDE[name]
    text = kernels(function, torch.ones(150, length, dtype=dtype), off=("codegen.column",))
    assert set(re.findall(r"l < \d+;", text)) == {points}


def test_a_special_number_anywhere_in_a_row_reaches_its_result() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(1), x.amax(1), x.amin(1), x.prod(1)

    once = compiled(function)
    for value, place in product((torch.nan, torch.inf, -torch.inf), (0, 84, 95, 96, 99)):
        x = torch.rand(140, 100) + 0.5
        x[77, place] = value
        with about(value=value, place=place):
            assert_as_eager(once, function, [x])


ROWS: dict[str, tuple[Callable[..., Any], bool]] = {
    # the rows, and whether something is left over after the last block
    "sum": (lambda x: x.sum(1), True),
    "sum of everything": (lambda x: x.sum(), True),
    "whole blocks": (lambda x: x[:, :576].sum(1), False),
    "squares": (lambda x: (x - x.mean(1, keepdim=True)).square().sum(1), True),
    "softmax": (lambda x: x.softmax(1), True),
    "planes": (lambda x: x.view(20, 10, 600).amax((0, 2)), True),
    "of bfloat16": (lambda x: x.bfloat16().square().mean(1), True),
    "double": (lambda x: x.double().amin(1), True),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_reduced_in_vectors_and_folded_at_their_end(tmp_path: Path, name: str) -> None:
    function, left = ROWS[name]
    text = kernels_as_eager(function, [torch.randn(200, 600)])
    assert "fold<" in text
    assert ("last_points<32>" in text) == left
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, :15].contiguous().sum(1),  # shorter than a block
        lambda x: x.cumsum(1),
        lambda x: F.pad(x, (3, 4)).sum(1),
        lambda x: x[:, x[0, :300].long().clamp(0, 9)].sum(1),
    ],
    ids=["short", "scan", "padding", "index"],
)
def test_rows_that_have_an_order_or_are_short_are_not_reduced_in_blocks(
    function: Callable[..., Any],
) -> None:
    assert "fold<" not in kernels(function, torch.randn(200, 600))


def test_a_sweep_that_overwrites_its_operand_computes_no_point_twice() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum(1)

    x, y = numbers(140, 100).float(), numbers(140, 100).float()
    assert compiled(function)(x).tolist() == function(y).tolist()
    assert x.tolist() == y.tolist()


PARTS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], bool]] = {
    # the function, its inputs, and whether rows are visited in blocks
    "function": (lambda x: x[:, 1:29].tanh(), [torch.randn(50, 30)], True),
    "function in bfloat16": (lambda x: F.gelu(x[:, 2:58]), [torch.randn(50, 60).bfloat16()], True),
    "conversions of float16": (
        lambda x: (x[:, 1:29] * 3 + 1) * x[:, :28],
        [torch.randn(50, 30).half()],
        True,
    ),
    "softmax": (lambda x: x[:, 1:301].softmax(1), [torch.randn(50, 303)], True),
    "sum of all": (lambda x: x[:, 1:29].exp().sum(), [torch.rand(50, 30)], True),
    "outer product": (lambda x, y: (x[:, None] * y).sin(), [*torch.rand(2, 20)], True),
    "part of a vector": (lambda x: x[:, 1:8].tanh(), [torch.randn(50, 9)], True),
    "part in bfloat16": (lambda x: x[:, 1:14].sigmoid(), [torch.randn(50, 15).bfloat16()], True),
    "part with an integer": (
        lambda x, i: x[:, 1:11].exp() * i[:, :10],
        [torch.randn(50, 11), torch.arange(500).view(50, 10)],
        True,
    ),
    "part of another part": (
        lambda x, y: (x[:, None] * y).cos(),
        [torch.rand(50), torch.rand(5)],
        True,
    ),
    "three quarters": (lambda x: x[:, 1:13].tanh(), [torch.randn(50, 14)], False),
    "whole vectors": (lambda x: x[:, 1:33].tanh(), [torch.randn(50, 40)], False),
    "little arithmetic": (lambda x: x[:, 1:29] * 3 + 1, [torch.randn(50, 30)], False),
    "one row": (lambda x: x.tanh(), [torch.randn(50, 29)], False),
    "long rows": (lambda x: x[:, 1:601].tanh(), [torch.randn(5, 602)], False),
    "padding": (lambda x: F.pad(x.tanh(), (3, 3)), [torch.randn(50, 50)], False),
}


@pytest.mark.parametrize("name", PARTS)
def test_no_function_is_computed_point_by_point_at_the_end_of_a_row(
    name: str, tmp_path: Path
) -> None:
    function, inputs, in_blocks = PARTS[name]
    torch._dynamo.reset()
    text = kernels_as_eager(function, inputs)
    assert ("_start" in text or "last_points" in text) == in_blocks
    assert scalar_loops(text, tmp_path) == []


def test_an_update_in_place_visits_each_point_once() -> None:
    def update(x: torch.Tensor) -> torch.Tensor:
        x[:, 1:29].tanh_()
        return x

    torch._dynamo.reset()
    assert "_start" not in kernels_as_eager(update, [torch.randn(50, 30)])


def test_points_that_do_not_count_access_no_memory() -> None:
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    x = torch.frombuffer(pages, dtype=torch.float32, offset=mmap.PAGESIZE)[:700].view(70, 10)
    x.normal_()
    none, both = 0, mmap.PROT_READ | mmap.PROT_WRITE
    protect = ctypes.CDLL(None, use_errno=True).mprotect

    def function(x: torch.Tensor) -> torch.Tensor:
        return x[:, :7].tanh()

    torch._dynamo.reset()
    call = compiled(function)
    call(x.clone())
    assert protect(ctypes.c_void_p(address), mmap.PAGESIZE, none) == 0
    try:
        assert_as_eager(call, function, [x])
    finally:
        assert protect(ctypes.c_void_p(address), mmap.PAGESIZE, both) == 0


APART: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "stacked": lambda x: torch.stack([x.tanh(), x.sigmoid(), x.exp(), x.cos()], -1),
    "enlarged": lambda x: F.interpolate(
        x[:2, :1, None, None], size=(x.shape[1], 4), mode="bilinear", align_corners=True
    ),
    "transposed": lambda x: x.tanh().t().contiguous(),
}


@pytest.mark.parametrize("length", [5, 13])
@pytest.mark.parametrize("name", APART)
def test_points_of_short_rows_that_lie_apart_are_all_stored(name: str, length: int) -> None:
    torch._dynamo.reset()
    assert_as_eager(compiled(APART[name], dynamic=False), APART[name], [torch.randn(6, length)])


def test_rows_with_a_condition_are_visited_in_blocks(tmp_path: Path) -> None:
    """The last points of a row were computed one by one: in bfloat16, 8 of 200, or 24 of 56."""
    x, y = torch.rand(40, 199), torch.rand(40, 200)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((F.pad((x + 1).log(), (1, 0)) * y).exp() - torch.arange(200)).sum(1)

    for dtype in (torch.float32, torch.bfloat16):
        torch._dynamo.reset()
        text = kernels_as_eager(function, [x.to(dtype), y.to(dtype)])
        assert "last_points<" in text
        assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("step", [2, 3])
def test_rows_with_gaps_are_not_visited_in_blocks(
    step: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    """g++ computed the last points of each block one by one: 8 of 16, and 8 of 32."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x[:, ::step].logsumexp(1) + x[:, 1::step].amax(1)

    torch._dynamo.reset()
    text = kernels_as_eager(function, [torch.randn(40, 200 * step).to(dtype)])
    assert "_start" not in text
    assert "last_points" not in text
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize(
    ("dtype", "length", "in_blocks"),
    [
        (torch.float16, 64, True),  # in a whole row, each number was converted alone
        (torch.float16, 128, True),
        (torch.bfloat16, 64, False),
        (torch.bfloat16, 384, False),
        (torch.bfloat16, 416, True),
        (torch.bfloat16, 144, True),
    ],
)
def test_only_whole_rows_of_bfloat16_are_not_divided_for_an_extreme(
    dtype: torch.dtype, length: int, in_blocks: bool
) -> None:
    text = kernels(lambda x: x.amax(1), torch.randn(300, length).to(dtype))
    assert ("_start" in text) == in_blocks


def test_blocks_are_longer_where_an_earlier_sweep_stored_a_mask() -> None:
    """Masks are bytes: with blocks of 16 points, their vectors would be quarters."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = x > y
        return mask, torch.where(mask, x, y * 0.5).log_softmax(1)

    text = kernels_as_eager(function, [torch.randn(40, 192), torch.randn(40, 192)])
    assert text.count("_lanes[32]") == 3
    assert "_lanes[16]" not in text
