"""Triton kernels compute the same as eager. Triton's interpreter runs them, without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from interpreting import rows_of

PROGRAMS = 48
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def test_programs_compute_what_eager_does(tmp_path: Path) -> None:
    lines = rows_of("interpret_programs.py", tmp_path)
    assert len(lines) == PROGRAMS
    assert [line for line in lines if line[2]] == []
    assert [name for name, graphs, _ in lines if graphs != "1"] == []  # all in Triton


def test_updates_of_inputs_in_any_order_agree_with_eager(tmp_path: Path) -> None:
    """Also where inputs share memory, or are parts of others, or have half types."""
    lines = rows_of("interpret_updates.py", tmp_path)
    assert [line for line in lines if line[2]] == []
    assert len(lines) == len({name.partition(" [")[0] for name, *_ in lines}) == 10
    assert sum(int(barriers) for _, barriers, _ in lines) > 0
