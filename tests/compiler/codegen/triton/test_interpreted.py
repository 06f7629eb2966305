"""Triton kernels compute the same as eager. Triton's interpreter runs them, without a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from interpreting import rows_of

PROGRAMS = 38


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_programs_compute_what_eager_does(tmp_path: Path) -> None:
    lines = rows_of("interpret_programs.py", tmp_path)
    assert len(lines) == PROGRAMS
    assert [line for line in lines if line[2]] == []
    assert [name for name, graphs, _ in lines if graphs != "1"] == []  # all in Triton
