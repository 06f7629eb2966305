"""Further calls of a graph on a GPU: those whose results differ from the first are kept."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from tcdebug.minifier.judging import further_calls
from tcdebug.minifier.judging.further_calls import MOST_CALLS, calls_of
from tcdebug.minifier.judging.replay import Results

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

NAN = float("nan")


def kept(
    value: Callable[[int], float], dtype: torch.dtype = torch.float32
) -> tuple[int, list[int]]:
    """Return how many calls there were, and the numbers of those that were kept."""
    made: list[int] = []

    def call() -> Results:
        made.append(1)
        return Results([torch.full((3,), value(len(made)), device="cuda").to(dtype)], [], [])

    calls = calls_of(call, Results.copied, Results.tensors)
    return len(made), [call.number for call in calls]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float8_e5m2])
def test_one_call_of_many_with_different_results_is_kept(dtype: torch.dtype) -> None:
    assert kept(lambda number: 2.0 if number == 3 else 1.0, dtype)[1] == [1, 3]


def test_equal_nans_are_equal_results() -> None:
    assert kept(lambda number: NAN)[1] == [1]


def test_results_that_always_differ_are_kept_ten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(further_calls, "ENOUGH_SECONDS", math.inf)
    assert kept(float) == (10, list(range(1, 11)))


def test_cheap_calls_are_made_often() -> None:
    made, numbers = kept(lambda number: 1.0)
    assert (3 <= made <= MOST_CALLS, numbers) == (True, [1])
