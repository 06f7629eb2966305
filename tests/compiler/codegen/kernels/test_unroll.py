"""codegen.unroll: the points of a short innermost axis are steps of one loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled
from property_settings import property_settings
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

PAIRS, COLOURS, QUADS = torch.randn(300, 2), torch.rand(4, 50, 3), torch.rand(200, 4)
MEAN = torch.tensor([0.5, 0.25, 0.125])


def corners(boxes: torch.Tensor) -> torch.Tensor:
    """The corners of boxes that are given by centre and size."""
    x, y, width, height = boxes.unbind(-1)
    return torch.stack([x - width, y - height, x + width, y + height], -1)


def rotated(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """Interleaved pairs turned by an angle each, as a rotary embedding turns them."""
    even, odd = x[:, ::2], x[:, 1::2]
    pairs = [even * angle - odd, even + odd * angle]
    return torch.stack(pairs, -1).flatten(1)


PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor], bool]] = {
    # the function, its inputs, and whether its points are unrolled
    "corners of boxes": (corners, [QUADS], True),
    "colours": (lambda x, m: (x - m) / m, [COLOURS, MEAN], True),
    "bytes of colours": (lambda x: x.flip(-1).float() / 255, [COLOURS.mul(255).byte()], True),
    "interleaved pairs": (rotated, [torch.randn(30, 64), torch.randn(30, 32)], True),
    "pairs turned": (lambda x: x.flip(-1) * 2, [PAIRS], True),
    "three columns": (lambda x, y, z: torch.stack([x, y, z], -1), [*torch.randn(3, 100)], True),
    "function of a row": (lambda x, m: torch.sinh(x[:, None] * m), [PAIRS[:, 0], MEAN], True),
    "mask of a row": (lambda x, m: x.where(m[:, None], -x), [PAIRS, PAIRS[:, 0] > 0], True),
    "contiguous": (lambda x: x * 2, [PAIRS], False),
    "five columns": (lambda x: x.flip(-1) * 2, [torch.randn(300, 5)], False),
    "few rows": (lambda x: x.flip(-1) * 2, [PAIRS[:7]], False),
    "far rows": (lambda x: x[:, :2] * 2, [torch.randn(300, 100)], False),
    "rows from anywhere": (lambda x, i: x[i] * 2, [COLOURS[0], torch.arange(50).flip(0)], False),
    "sum of a row": (lambda x, m: (x - m).sum(-1), [COLOURS, MEAN], False),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_points_of_a_short_axis_are_computed_in_vectors_along_the_next(
    name: str, tmp_path: Path
) -> None:
    function, inputs, is_unrolled = PROGRAMS[name]
    torch._dynamo.reset()
    text = kernels_as_eager(function, inputs)
    assert ("_at1" in text) == is_unrolled
    if is_unrolled:
        assert scalar_loops(text, tmp_path) == []


def test_the_loop_stays_with_the_unit_off() -> None:
    off = kernels(corners, QUADS, off=("codegen.unroll",))
    assert off.count("for (") == kernels(corners, QUADS).count("for (") + 1


def test_an_update_reads_all_points_before_it_stores_them() -> None:
    def swap(x: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.stack([x[:, 1] * 2, x[:, 0] * 3], -1))
        return x

    torch._dynamo.reset()
    found, expected = PAIRS.clone(), PAIRS.clone()
    compiled(swap)(found)
    assert torch.equal(found, swap(expected))


@property_settings(8)
@given(
    rows=st.integers(1, 40),
    count=st.integers(2, 5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]),
    padding=st.tuples(st.integers(-1, 1), st.integers(-1, 1)),
    step=st.integers(1, 3),
    updates=st.booleans(),
    data=st.data(),
)
def test_rows_of_few_elements_are_those_of_eager(
    rows: int,
    count: int,
    dtype: torch.dtype,
    padding: tuple[int, int],
    step: int,
    updates: bool,  # drawn by name
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(range(count)))
    width = count * step
    given_ = torch.arange(3 * rows * width).view(3 * rows, width).remainder(13).to(dtype)

    def function(x: torch.Tensor, last: torch.Tensor) -> tuple[Any, ...]:
        columns = x[::3, ::step].unbind(-1)
        joined = torch.stack([columns[k] for k in order], -1)
        if updates:
            x[::3, ::step] = joined
        return joined + last, F.pad(joined, padding), joined.where(joined > 3, last)

    torch._dynamo.reset()
    last = torch.arange(count).to(dtype)
    assert_as_eager(compiled(function), function, [given_, last], exact=True)


@pytest.mark.parametrize("off", [["fuse.reduction"], ["fuse"], []])
def test_points_overwrite_what_each_of_them_has_read(off: list[str]) -> None:
    """The rows divide, in place, what they have added up."""

    def shares(*inputs: torch.Tensor) -> list[torch.Tensor]:
        squares = [F.batch_norm(x, None, None, training=True) for x in inputs]
        return [x.softmax(-1) for x in inputs] + squares

    inputs = [torch.randn(17, 3), torch.randn(10, 2)]
    assert_as_eager(compiled(shares, options={"off": off}), shares, inputs)


STORED_PLACES: dict[str, Callable[..., Any]] = {
    "gathered": lambda x, i: (x.gather(-1, (i + 1) % x.size(-1)), (i + 1) % x.size(-1)),
    "gathered twice": lambda x, i: (x.gather(-1, x.long().gather(-1, i).abs() % 2), x.long() + i),
    "taken along": lambda x, i: torch.take_along_dim(x, i, -1),
    "of another row": lambda x, i: (x[(i.flatten()[: len(x)] + 1) % len(x)] + x, i * 2),
}


@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("name", STORED_PLACES)
def test_points_that_read_at_a_place_read_that_of_the_same_point(name: str, columns: int) -> None:
    drawn = torch.Generator().manual_seed(columns)
    for size in ((40, columns), (3, columns, columns)):
        torch._dynamo.reset()
        i = torch.randint(0, columns, size, generator=drawn)
        x = (torch.randn(size, generator=drawn) * 3).requires_grad_()
        function, fast = STORED_PLACES[name], compiled(STORED_PLACES[name])
        wanted, found = tree_leaves(function(x, i)), tree_leaves(fast(x, i))
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(results[0].sum(), x) for results in (found, wanted)]
        torch.testing.assert_close(*gradients)
