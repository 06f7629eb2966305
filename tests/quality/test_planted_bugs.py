"""`tcdebug bisect` names the unit that holds a planted bug, and leaves a graph of 5 nodes or fewer.

One row a unit and a way to fail; what breaks is in tests/planted.py, the model in
tests/scripts/planted_model.py. Every row is run by `pytest -m slow tests/quality`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import bisected, check, rows

SCRIPT = Path(__file__).parents[1] / "scripts" / "planted_model.py"
FAST = {
    ("passes.algebraic", "wrong"),
    ("lower.aten.tanh.default", "segfault"),
}
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


@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("unit", "kind"), rows(UNITS, FAST))
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
