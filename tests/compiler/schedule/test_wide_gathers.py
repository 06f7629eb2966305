"""fuse.wide_gathers: bfloat16 and float16 are read through indices in loops of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cpp_kernels import kernels_as_eager, scalar_loops
from stages import capture

Function = Callable[..., Any]
PLACES = torch.arange(6000).reshape(60, 100) * 7 % 500
BFLOAT16, FLOAT16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32


def stored(function: Function, *inputs: torch.Tensor) -> list[tuple[torch.dtype, int]]:
    """The dtype and the elements of the results of each kernel, in order."""
    (schedule,) = capture(function, *inputs, dynamic=False).schedules
    nodes = [n for k in schedule.kernels() for n in k.nodes if n.name in k.stored]
    return [(n.out.dtype, n.out.numel.constant or 0) for n in nodes]


CASES: dict[str, tuple[Function, torch.Tensor, list[tuple[torch.dtype, int]]]] = {
    "a small operand is converted": (
        lambda x, i: x[i].sigmoid(),
        torch.randn(500).bfloat16(),
        [(FLOAT32, 500), (FLOAT32, 6000), (BFLOAT16, 6000)],
    ),
    "also if several elements are read": (
        lambda x, i: (x[i] * x[499 - i]).sigmoid(),
        torch.randn(9000).half(),
        [(FLOAT32, 9000), (FLOAT32, 6000), (FLOAT16, 6000)],
    ),
    "elements of a large one are moved": (
        lambda x, i: x[i * 30].sigmoid(),
        torch.randn(15000).bfloat16(),
        [(BFLOAT16, 6000), (BFLOAT16, 6000)],
    ),
    "without arithmetic nothing changes": (
        lambda x, i: x[i] * 2,
        torch.randn(500).bfloat16(),
        [(BFLOAT16, 6000)],
    ),
    "floats are gathered": (
        lambda x, i: x[i].sigmoid(),
        torch.randn(500),
        [(FLOAT32, 6000)],
    ),
    "functions of rows of few neighbours": (
        lambda x, i: F.pixel_shuffle(x, 2).tanh(),
        torch.randn(8, 16, 7, 7),
        [(FLOAT32, 6272), (FLOAT32, 6272)],
    ),
    "but not if rows are unrolled and fill the cache": (
        lambda x, i: F.pixel_shuffle(x, 2).tanh(),
        torch.randn(8, 16, 56, 56),
        [(FLOAT32, 401408)],
    ),
    "functions of repeated elements stay": (
        lambda x, i: x.repeat_interleave(7, -1).exp(),
        torch.randn(50, 100),
        [(FLOAT32, 35000)],
    ),
    "but not at a remainder": (
        lambda x, i: x[i * 3 % 500].sigmoid(),
        torch.randn(500),
        [(FLOAT32, 6000), (FLOAT32, 6000)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_halves_are_read_from_a_copy_or_moved(name: str) -> None:
    function, x, wanted = CASES[name]
    assert stored(function, x, PLACES) == wanted
    kernels_as_eager(function, [x, PLACES])


def test_the_loop_with_arithmetic_is_vectorized(tmp_path: Path) -> None:
    x = torch.randn(4, 3, 40, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    text = kernels_as_eager(lambda x: F.interpolate(x, size=(30, 37), mode="bilinear"), [x])
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
def test_results_are_those_of_eager(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 101, generator=generator).to(dtype)
    rows = x[:, :, ::2]  # strided, with a dimension of one element
    table = x[:1].expand(60, 1, 101)

    def function(x: torch.Tensor, rows: torch.Tensor, table: torch.Tensor) -> Any:
        places = PLACES.unsqueeze(1) % 101
        return (
            F.gelu(x.gather(2, places)),
            rows[..., PLACES[1] % 51 - 51].sigmoid(),
            table.take_along_dim(places - 101, 2).exp(),
        )

    kernels_as_eager(function, [x, rows, table])
