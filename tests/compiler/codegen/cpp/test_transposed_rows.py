"""Short rows are transposed, so that their reductions have vector lanes across them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from judge import about, assert_as_eager, compiled

TRANSPOSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "position and extreme": lambda x: (x.argmax(-1), x.amin(-1)),
    "mask beside a mean": lambda x: (x > 0, x.mean(-1)),
    "scan": lambda x: x.cumsum(-1).exp() * 2,
    "scaled by its row's sum and columns": lambda x: x / (1 + x.abs().sum(-1, True)) + x[0],
}


def placed_beside_guards(numbers: torch.Tensor) -> Iterator[torch.Tensor]:
    """Copies that begin behind a page that cannot be read, and that end before one."""
    page = mmap.PAGESIZE
    size = numbers.nbytes
    inner = -(-size // page) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (whole.data_ptr(), whole.data_ptr() + page + inner):
        assert libc.mprotect(ctypes.c_void_p(guard), page, 0) == 0
    for start in (page, page + inner - size):
        place = whole[start : start + size]
        place.copy_(numbers.view(torch.uint8))
        yield place.view(numbers.dtype)


def rows(count: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers with ties, and special ones in some rows."""
    x = (torch.randn(count, length) * 3).round()
    x[1, 0], x[2, -1], x[3], x[4, length // 2] = torch.nan, torch.inf, -torch.inf, -torch.inf
    return x.to(dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRANSPOSED)
def test_short_rows_have_the_results_of_eager(name: str) -> None:
    for size, dtype in (((129, 13), torch.float32), ((70, 28), torch.bfloat16)):
        torch._dynamo.reset()
        assert "transpose<1>(" in kernels_as_eager(TRANSPOSED[name], [rows(*size, dtype)])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8, torch.float16])
@pytest.mark.parametrize(
    ("count", "length"), [(90, 2), (17, 13), (64, 8), (65, 28), (66, 4), (16, 5), (95, 7)]
)
def test_rows_of_any_length_and_dtype_are_transposed(
    count: int, length: int, dtype: torch.dtype
) -> None:
    x = torch.arange(count * length).view(count, length).remainder(11).to(dtype)

    def function(x: torch.Tensor) -> Any:
        return x.argmax(-1), x - x.amax(-1, keepdim=True)

    assert "transpose<1>(" in kernels_as_eager(function, [x], exact=True)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
@pytest.mark.parametrize("step", [1, 2])
def test_rows_of_four_to_seven_elements_are_read_within_their_memory(
    step: int, dtype: torch.dtype
) -> None:
    """Vectors of eight read more than a row. A page before and behind the rows must not be read."""
    for length, count in product(range(4, 8), (16, 23, 64, 131)):
        torch._dynamo.reset()
        once = compiled(lambda x: x.amax(-1), dynamic=False)
        elements = step * (length * count - 1) + 1
        numbers = torch.arange(elements).remainder(13).to(dtype)
        for memory in placed_beside_guards(numbers):
            x = memory.as_strided((count, length), (step * length, step))
            with about(length=length, count=count):
                assert torch.equal(once(x), x.amax(-1))


def test_rows_in_sliced_and_transposed_memory_are_read_and_written_in_place() -> None:
    def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.sub_(y.amax(-1, keepdim=True))
        return x.softmax(-1) + y

    wide, transposed = torch.randn(5, 70, 56), torch.randn(28, 70, 5)
    for x in (wide[..., ::2], wide[..., :28], transposed.permute(2, 1, 0)):
        torch._dynamo.reset()
        assert_as_eager(compiled(normalised), normalised, [x, torch.randn(5, 70, 28)])


def test_only_short_rows_that_vectors_do_not_divide_are_transposed(tmp_path: Path) -> None:
    def gathered(x: torch.Tensor) -> torch.Tensor:
        return x.gather(-1, x.argsort(-1)).sum(-1)

    softmax = TRANSPOSED["softmax"]
    text = kernels(softmax, torch.randn(256, 28))
    assert text.count("transpose<1>(") == 1
    assert text.count("transpose(rows_of_div") == 1
    over_points = " " * 6 + "for"
    assert [loop for loop in scalar_loops(text, tmp_path) if loop.startswith(over_points)] == []
    assert "transpose<1>(" not in kernels(softmax, torch.randn(256, 64))
    assert "transpose<1>(" not in kernels(softmax, torch.randn(256, 129))
    assert "transpose<1>(" not in kernels(softmax, torch.randn(256, 28), off=("codegen.tile",))
    assert "transpose<1>(" not in kernels(softmax, torch.randn(256, 28), off=("codegen.column",))
    assert "transpose<1>(" not in kernels(gathered, torch.randn(256, 28))


BF16, F32 = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("function", "length", "dtype", "is_transposed"),
    [
        (TRANSPOSED["softmax"], 96, F32, False),
        (TRANSPOSED["softmax"], 96, BF16, True),
        (lambda x: torch.nn.functional.normalize(x, dim=-1), 64, F32, False),
        (lambda x: torch.nn.functional.normalize(x, dim=-1), 64, BF16, True),
        (lambda x: torch.nn.functional.layer_norm(x, (32,)), 32, F32, True),
        (lambda x: torch.nn.functional.layer_norm(x, (128,)), 128, F32, False),
        (lambda x: torch.nn.functional.layer_norm(x, (128,)), 128, BF16, True),
        (lambda x: x.sum(-1), 32, F32, False),
        (lambda x: x.sum(-1), 64, BF16, False),
        (lambda x: x.std(-1), 128, F32, False),
        (lambda x: x.cumsum(-1), 128, F32, True),
    ],
)
def test_rows_are_transposed_where_that_was_measured_to_take_less_time(
    function: Callable[[torch.Tensor], Any], length: int, dtype: torch.dtype, is_transposed: bool
) -> None:
    text = kernels(function, torch.randn(256, length, dtype=dtype))
    assert ("transpose<1>(" in text) == is_transposed


def test_rows_that_are_too_short_or_cannot_be_transposed_stay_rows() -> None:
    assert "transpose<1>(" not in kernels(lambda x: x.cumsum(-1), torch.randn(900, 7))
    planes = torch.randn(251, 127, 67).permute(2, 1, 0)
    assert "int lanes" not in kernels(lambda x: x.logsumexp((0, 2)), planes)


@pytest.mark.parametrize("length", [0, 1])
def test_rows_without_neighbours_have_the_results_of_eager(length: int) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.sum(-1), x.exp() + x.prod(-1, keepdim=True)

    assert_as_eager(compiled(function, dynamic=False), function, [torch.randn(70, length)])
