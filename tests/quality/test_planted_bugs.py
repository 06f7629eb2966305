"""`tcdebug bisect` names the unit with a planted bug, and leaves a graph of at most 5 nodes.

Each row is a unit and a kind of failure. tests/planted.py defines the bugs; the model is in
tests/scripts/planted_model.py. `pytest -m slow tests/quality` runs every row.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from planted_bisect import CONFIRMED_FAILURE, bisected, check

SCRIPT = Path(__file__).parents[1] / "scripts" / "planted_model.py"
UNITS = (
    "pregrad.fused_attention",
    "pregrad.whole_interpolation",
    "pregrad.redundant_masks",
    "passes.algebraic",
    "passes.joined_pieces",
    "passes.constant_folding",
    "passes.updates_in_place",
    "decompose.aten.tanh_backward.default",
    "lower.aten.tanh.default",
    "lower.aten.copy_.default",
    "lower.aten.index_put.default",
    "fuse.inline",
    "fuse.reduction",
    "codegen.vectorize",
    "memory.reuse",
)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("unit", "kind"), [*itertools.product(UNITS, CONFIRMED_FAILURE)])
def test_a_bug_in_a_small_model_is_found(tmp_path: Path, unit: str, kind: str) -> None:
    report = bisected(tmp_path, unit, kind, blocks=3, script=SCRIPT)
    assert report["nodes_before"] >= 20
    check(report, unit, kind)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("unit", UNITS)
def test_a_bug_in_a_model_of_hundreds_of_nodes_is_found(tmp_path: Path, unit: str) -> None:
    report = bisected(tmp_path, unit, "exception", blocks=40, script=SCRIPT)
    assert report["nodes_before"] >= 350
    check(report, unit, "exception")
