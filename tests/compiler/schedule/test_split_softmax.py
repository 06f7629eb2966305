"""Sums of exponentials in pieces: their results, with special numbers in any of the pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import capture

from tcdebug.compiler.schedule.splitting import pieces, split_reduction

ROWS, LENGTH = 3, 331
SPECIAL = (float("inf"), float("-inf"), float("nan"), 3e38, -3e38, 200.0, -200.0, 0.0)
Reduced = tuple[torch.Tensor, ...]


def reduced(x: torch.Tensor) -> Reduced:
    columns = x.t().contiguous()
    of_rows, of_columns = (x.logsumexp(1), x.softmax(1)), (columns.logsumexp(0), columns.softmax(0))
    return (*of_rows, *of_columns, x.logsumexp((0, 1)))


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[[torch.Tensor], Reduced]]:
    """The same in pieces of some 16 elements, as they are made for a GPU, in C++."""
    x = torch.zeros(ROWS, LENGTH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_reduction, "DEVICES", ("cpu",))
        patch.setattr(pieces, "PIECE", 16)
        (schedule,) = capture(reduced, x, dynamic=False).schedules
        made = {node.name for kernel in schedule.kernels() for node in kernel.nodes}
        assert {f"sum_{k}_sum_piece" for k in (1, 2, 3, 4, 5)} <= made
        graph = torch.compile(reduced, backend="tcdebug", dynamic=False)
        graph(x)
        yield graph


@st.composite
def rows(draw: st.DrawFn) -> torch.Tensor:
    """Rows of small numbers with some special ones, perhaps over a whole piece."""
    x = torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0)) * 30
    for _ in range(draw(st.integers(0, 4))):
        row, first = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, LENGTH - 1))
        length = draw(st.sampled_from([1, 2, 60, LENGTH]))
        x[row, first : first + length] = draw(st.sampled_from(SPECIAL))
    return x


@settings(max_examples=150, deadline=None)
@given(rows())
def test_special_numbers_in_any_piece_have_the_effect_that_they_have_in_eager(
    compiled: Callable[[torch.Tensor], Reduced], x: torch.Tensor
) -> None:
    for got, wanted in zip(compiled(x), reduced(x), strict=True):
        torch.testing.assert_close(got, wanted, equal_nan=True, rtol=2e-5, atol=2e-5)
