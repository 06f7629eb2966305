"""Tiles and kernels of programs measured on an H200, where no other tile was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.triton.tiles import Tile

pytest.importorskip("triton")

half = torch.bfloat16
Program = Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]


def add_and_normalize(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
    total = x + y
    wide = total.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (wide * scale).to(x.dtype) * w, total


PROGRAMS: dict[str, tuple[Program, str]] = {
    "pointwise": (
        lambda: (lambda x, y: (x + y).relu() * 2, (cuda(8192, 8192), cuda(8192, 8192))),
        "x1024 w4",
    ),
    "pointwise of halves": (
        lambda: (
            lambda x, b: F.gelu(x + b),
            (cuda(16384, 8192, dtype=half), cuda(8192, dtype=half)),
        ),
        "x2048 w4",
    ),
    "few points": (lambda: (lambda x: x + 1, (cuda(300),)), "x128 w4"),
    "transposed": (
        lambda: (lambda x, y: x.t() + y, (cuda(8192, 8192), cuda(8192, 8192))),
        "y64 x64 w8",
    ),
    "softmax": (
        lambda: (lambda x: torch.softmax(x, -1), (cuda(16384, 4096),)),
        "x1 r4096 w16 looped",
    ),
    "softmax of a long row": (
        lambda: (lambda x: torch.softmax(x, -1), (cuda(1024, 128256, dtype=half),)),
        "x1 r32768 w32 looped",
    ),
    "layer norm": (
        lambda: (lambda x: F.layer_norm(x, (4096,)), (cuda(32768, 4096, dtype=half),)),
        "x1 r4096 w8 whole",
    ),
    "sum and norm": (
        lambda: (
            add_and_normalize,
            (cuda(32768, 4096, dtype=half), cuda(32768, 4096, dtype=half), cuda(4096, dtype=half)),
        ),
        "x1 r4096 w8 looped",
    ),
    "sum of rows": (
        lambda: (lambda x: x.sum(-1), (cuda(16384, 16384),)),
        "x1 r16384 w32 whole",
    ),
    "sum of columns": (
        lambda: (lambda x: x.sum(0), (cuda(16384, 16384),)),
        "x32 r128 w8 looped",
    ),
}


STRIDED: dict[str, tuple[Program, str]] = {
    "rows along a sliced axis": (
        lambda: (lambda x: x.sum(1), (strided((512, 128, 256), (65536, 512, 2)),)),
        "x32 r128 w2 whole",
    ),
    "rows along a permuted axis": (
        lambda: (lambda x: x.sum(2), (strided((512, 128, 256), (1, 512, 65536)),)),
        "x32 r32 w4 looped",
    ),
    "scans along a permuted axis": (
        lambda: (lambda x: x.cumsum(2), (strided((512, 128, 256), (1, 512, 65536)),)),
        "x64 r32 w4 looped",
    ),
    "scans of repeated rows": (
        lambda: (lambda x: x.cumsum(0), (strided((488, 127, 251), (0, 251, 1)),)),
        "x64 r32 w4 looped",
    ),
    "short rows along an outer axis": (
        lambda: (lambda x: x.sum(1), (strided((4072, 5, 768), (1, 4072, 20360)),)),
        "y64 x64 w8",
    ),
    "a piece much shorter than its tile": (
        lambda: (lambda x: x.sum(), (cuda(768, 5, 4072),)),
        "x1 r4096 w16 looped, r1024 w4 whole",
    ),
}
"""Tiles that read or store neighbours in memory: up to 5 times as fast as others on an H100."""


OF_TWO_AXES: dict[str, tuple[Program, str]] = {
    "rows along two outer axes": (
        lambda: (lambda x: x.cumsum(1), (strided((512, 30, 256), (1, 512, 15360)),)),
        "y16 x32 r32 w16 whole",
    ),
    "long rows along two outer axes": (
        lambda: (lambda x: x.cumsum(1), (strided((512, 128, 256), (1, 512, 65536)),)),
        "y8 x16 r128 w16 whole",
    ),
    "sums along two outer axes": (
        lambda: (lambda x: x.sum(1), (strided((512, 30, 256), (1, 512, 15360)),)),
        "x32 r32 w1 whole",
    ),
    "what rows along two outer axes are for": (
        lambda: (
            lambda x, y: y + (x - x.amax(1, keepdim=True)).exp(),
            (strided((512, 30, 256), (1, 512, 15360)), cuda(512, 30, 256)),
        ),
        "y16 x32 r32 w16 whole",
    ),
    "short rows of an odd length": (
        lambda: (lambda x: x.logsumexp(1), (cuda(1_000_000, 7, dtype=half),)),
        "x512 w4",
    ),
    "short rows that are vectors": (
        lambda: (lambda x: x.logsumexp(1), (cuda(1_000_000, 8, dtype=half),)),
        "x128 r8 w4 whole",
    ),
    "places in long rows": (
        lambda: (lambda x: x.argmax(1), (cuda(4096, 32768, dtype=half),)),
        "x1 r4096 w32 looped",
    ),
    "rows along two outer axes that begin within sectors": (
        lambda: (lambda x: x.cumsum(1), (strided((488, 127, 251), (1, 488, 61976)),)),
        "x32 r128 w2 whole",
    ),
    "rows and a mean of columns that share numbers of rows": (
        lambda: (lambda x, y: (x / y).mean(0), (cuda(8248, 257), cuda(8248, 1))),
        "x16 r256 w4 whole, x32 r64 w4 whole",
    ),
    "divisions in indices": (
        lambda: (lambda x: F.pixel_shuffle(x, 2), (cuda(64, 128, 28, 28, dtype=half),)),
        "x64 y16 w4",
    ),
    "data in indices": (
        lambda: (lambda x, i: x.gather(1, i), (cuda(512, 128), cuda(512, 112, dtype=torch.int64))),
        "x128 y8 w8",
    ),
    "steps of two elements": (
        lambda: (lambda x: F.max_pool2d(x, 3, 2, 1), (cuda(256, 32, 64, 64),)),
        "x32 y16 w8",
    ),
    "padded rows": (
        lambda: (
            lambda x, m, s: F.pad((x - m) * s, (0, 7)),
            (cuda(8192, 50257, dtype=half), cuda(8192, 1), cuda(8192, 1)),
        ),
        "x512 y1 w8",
    ),
    "statistics of channels": (
        lambda: (
            lambda x, m, s: ((x - m) * s).to(half),
            (cuda(256, 64, 56, 56, dtype=half), cuda(1, 64, 1, 1), cuda(1, 64, 1, 1)),
        ),
        "x512 y2 w4",
    ),
    "numbers of rows in a square": (
        lambda: (lambda x, y: x / y, (cuda(88, 90001), cuda(88, 1))),
        "x1024 w4",
    ),
}
"""Tiles that depend on more than one axis: up to 2.7 times as fast as others on an H100."""


def strided(size: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(size, strides, device="cuda")


def described(tile: Tile) -> str:
    blocks = [f"{g.name}{g.block}" for g in tile.groups if g.axes]
    rows = any(g.name == "r" for g in tile.groups)
    kind = [] if not rows else ["whole" if tile.persistent else "looped"]
    return " ".join([*blocks, f"w{tile.warps}", *kind])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_tiles_are_the_fastest_ones_measured(name: str) -> None:
    program, expected = PROGRAMS[name]
    kernels = triton_of(program).kernels.values()
    assert ", ".join(described(k.tile) for k in kernels) == expected


@pytest.mark.parametrize("name", [*STRIDED, *OF_TWO_AXES])
def test_a_tile_has_neighbours_in_memory(name: str) -> None:
    program, expected = (STRIDED | OF_TWO_AXES)[name]
    kernels = triton_of(program).kernels.values()
    assert ", ".join(described(k.tile) for k in kernels) == expected


def test_a_sum_over_several_axes_is_split_without_a_remainder() -> None:
    source = triton_of(lambda: (lambda x: x.sum((0, 1)), (cuda(32, 197, 3072, dtype=half),)))
    assert list(source.kernels) == ["triton_red_sum_0", "triton_red_fused_sum_1"]
    pieces = source.kernels["triton_red_sum_0"].flat
    assert [a.size for a in (*pieces.outer, *pieces.inner)] == [32, 3072, 197]
    guards = source.kernels["triton_red_sum_0"].call.source.count("tl.where")
    assert guards == 1  # the mask of the last tile


def test_loads_of_one_number_per_row_do_not_make_a_kernel_columnwise() -> None:
    """In log_softmax's backward there is one load of the row and three of one number per row."""

    def backward(x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        largest, log, scale = given
        return (((x - largest) - log).exp() * scale).sum(1)

    row = (8192, 1)
    source = triton_of(lambda: (backward, (cuda(8192, 50304), cuda(*row), cuda(*row), cuda(*row))))
    tiles = [described(k.tile) for k in source.kernels.values()]
    assert tiles == ["x1 r8192 w32 whole", "x128 w4"]  # pieces of a row, their sums


def test_what_columns_read_of_each_row_does_not_make_a_kernel_rowwise() -> None:
    """Tiles of 2 columns read four times as much memory, since rows begin in other sectors."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = (x * y).softmax(-1) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        return x.sum(0)

    source = triton_of(lambda: (function, (cuda(32768, 1000), cuda(32768, 1000))))
    tiles = [described(k.tile) for k in source.kernels.values()]
    assert tiles == ["x1 r1024 w1 whole", "x32 r32 w4 looped", "x32 r64 w4 whole"]


def test_backward_of_a_layer_norm_has_one_row_kernel_and_one_column_kernel() -> None:
    """Row-wise sums are fused with their users, not with column loops over the same memory."""

    def backward(*given: torch.Tensor) -> Any:
        gradient, x, mean, scale, weight = given
        mask = [True, True, True]
        return torch.ops.aten.native_layer_norm_backward(
            gradient, x, [1024], mean, scale, weight, weight, mask
        )

    rows, row = (8192, 1024), (8192, 1)
    source = triton_of(
        lambda: (backward, (cuda(*rows), cuda(*rows), cuda(*row), cuda(*row), cuda(1024)))
    )
    tiles = [described(k.tile) for k in source.kernels.values()]
    assert tiles == [
        "x1 r1024 w1 whole",
        "x32 r128 w2 whole",
        "x1 w4",  # the sums of the pieces, for weight and bias, in one launch
    ]
