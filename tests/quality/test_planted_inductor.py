"""`tcdebug bisect` names the unit of stock inductor with a planted bug.

tests/planted_inductor.py defines the bugs; the model is in tests/scripts/planted_inductor_model.py.
`pytest -m slow tests/quality` runs every row.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import CONFIRMED_FAILURE, bisected, check
from repros_alone import PASSES, statuses

SCRIPT = Path(__file__).parents[1] / "scripts" / "planted_inductor_model.py"
UNITS = (
    "decompose.aten.softplus.default",
    "partition.recompute",
    "postgrad.post_grad_custom_post_pass",
    "lower.aten.tanh.default",
    "fuse.vertical",
    "codegen.vectorize",
)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", CONFIRMED_FAILURE)
@pytest.mark.parametrize("unit", UNITS)
def test_a_bug_in_inductor_is_found(tmp_path: Path, unit: str, kind: str) -> None:
    check(bisected(tmp_path, unit, kind, blocks=1, script=SCRIPT), unit, kind)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_repro_of_a_hang_passes_without_its_culprit_where_no_kernel_is_cached(
    tmp_path: Path,
) -> None:
    unit = "lower.aten.tanh.default"
    (fault,) = bisected(tmp_path, unit, "hang", blocks=1, script=SCRIPT)["faults"]
    assert statuses(Path(fault["repro"]), fault["passes"], times=1) == (PASSES,)
