"""The judge that a standalone repro script contains decides as the minifier does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from captured import captured
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings
from repro_scripts import EAGER, WRONG, namespace_of

from tcdebug.minifier.judging.compare import difference
from tcdebug.minifier.repros.judge.calls import further_calls, widened
from tcdebug.minifier.repros.repro import Repro, write

PROPERTY = property_settings(150)
NUMBERS = st.sampled_from(
    [0.0, 1.0, 1.00005, 1.0009, 1.01, 1.02, 1.05, -1.0, 70000.0, math.inf, -math.inf, math.nan]
)
DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.complex64, torch.int64, torch.bool,
]  # fmt: skip


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what any standalone repro script defines."""
    torch._dynamo.reset()
    path = tmp_path_factory.mktemp("repro") / "repro.py"
    write(captured(torch.sin, torch.ones(2)), Repro(WRONG, EAGER, standalone=True), path)
    return namespace_of(path)


def tensor(values: list[float], dtype: torch.dtype) -> torch.Tensor:
    exact = torch.tensor(values, dtype=torch.float64)
    return exact.to(dtype) if dtype.is_floating_point else exact.nan_to_num(7, 8, 9).to(dtype)


def test_the_script_judges_as_the_minifier_does(script: dict[str, Any]) -> None:
    @PROPERTY
    @given(st.data(), st.sampled_from(DTYPES), st.integers(1, 3), st.booleans())
    def same(data: st.DataObject, dtype: torch.dtype, size: int, referenced: bool) -> None:
        draw = st.lists(NUMBERS, min_size=size, max_size=size)
        eager, actual = tensor(data.draw(draw), dtype), tensor(data.draw(draw), dtype)
        exact = tensor(data.draw(draw), torch.float64) if referenced else None
        found = difference(eager, actual, exact, "")
        assert script["difference"](eager, actual, exact) == (found.what if found else None)

    same()


@pytest.mark.parametrize(
    ("eager", "actual"),
    [
        (1.0, 1.0 + 1e-9), (1.0, 1.1), (math.nan, math.nan), (1, 1.0), (1, 2), (None, None),
        (torch.ones(2), torch.ones(3)), (torch.ones(2), torch.ones(2).double()),
        (torch.ones(()), 1.0), (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
        (torch.ones(2).to_sparse(), torch.ones(2).to_sparse() * 2),
    ],
)  # fmt: skip
def test_the_script_judges_odd_values_as_the_minifier_does(
    script: dict[str, Any], eager: Any, actual: Any
) -> None:
    found = difference(eager, actual, None, "")
    assert script["difference"](eager, actual, None) == (found.what if found else None)


def test_the_script_runs_a_graph_with_casts_in_float64(script: dict[str, Any]) -> None:
    ones = torch.ones(2, dtype=torch.float64)
    assert script["in_float64"](torch.Tensor.bfloat16, lambda graph: graph(ones) @ ones) == 2.0


@pytest.mark.parametrize("most", [0, 9, 99])
def test_cheap_calls_are_repeated_as_often_as_a_repro_says(most: int) -> None:
    assert len(list(further_calls(most))) == most


def test_elements_that_share_memory_still_do_in_float64() -> None:
    values = [
        torch.arange(3.0).as_strided((2, 2), (1, 1)), torch.zeros(2, 1).expand(2, 3),
        torch.zeros(4)[::2], torch.zeros(()), torch.zeros(0, 2), torch.ones(2).to_sparse(),
    ]  # fmt: skip
    overlapping, *others = widened(values)
    overlapping.add_(1)
    assert overlapping.tolist() == [[1.0, 3.0], [3.0, 3.0]]
    assert {wide.dtype for wide in (overlapping, *others)} == {torch.float64}
    assert [wide.shape for wide in others] == [value.shape for value in values[1:]]
