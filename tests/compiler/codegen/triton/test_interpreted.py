"""Triton kernels compute the same as eager. Triton's interpreter runs them, without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from interpreting import Rows, rows_of
from torch_versions import needs_torch

PROGRAMS = 71
ALL = "interpret_all_programs"
PRODUCTS = 18
needs_numbers = needs_torch("2.12", "Triton's interpreter rejects sizes of NumPy as numbers")
SCRIPTS = ("interpret_programs", "interpret_updates", "interpret_products")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    """What each script prints."""
    return rows_of(SCRIPTS, tmp_path_factory.mktemp("cache"))


def check(lines: Rows, programs: int) -> None:
    assert len(lines) == programs
    assert [line for line in lines if line[2]] == []
    assert [name for name, graphs, _ in lines if graphs != "1"] == []  # all in Triton


def test_a_sixth_of_the_programs_computes_what_eager_does(rows: dict[str, Rows]) -> None:
    check(rows["interpret_programs"], (PROGRAMS + 5) // 6)


@pytest.mark.slow
def test_programs_compute_what_eager_does(tmp_path: Path) -> None:
    check(rows_of((ALL,), tmp_path)[ALL], PROGRAMS)


@needs_numbers
def test_updates_of_inputs_in_any_order_agree_with_eager(rows: dict[str, Rows]) -> None:
    """Also where inputs share memory, or are parts of others, or have half types."""
    lines = rows["interpret_updates"]
    assert [line for line in lines if line[2]] == []
    assert len(lines) == len({name.partition(" [")[0] for name, *_ in lines}) == 10
    assert sum(int(barriers) for _, barriers, _ in lines) > 0


@needs_numbers
def test_templates_of_products_compute_what_eager_does(rows: dict[str, Rows]) -> None:
    lines = rows["interpret_products"]
    assert len(lines) == PRODUCTS
    assert [line for line in lines if line[3]] == []
    assert [name for name, graphs, *_ in lines if graphs != "1"] == []  # all with templates
    assert {name: int(count) for name, _, count, _ in lines if count != "1"} == {"one row": 2}
