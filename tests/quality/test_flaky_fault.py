"""`tcdebug bisect` names the culprit of a failure that does not occur in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import LEFT, report_of

SCRIPT = """
import torch
from torch._inductor import lowering
aten = torch.ops.aten
relu = lowering.lowerings[aten.relu.default]

def sometimes(x):
    with open({compiles!r}, "a+") as file:
        file.write("x")
        number = file.tell()
    wrong = number % 4 != 2
    return lowering.lowerings[aten.abs.default](x) if wrong else relu(x)

lowering.register_lowering(aten.relu.default, type_promotion_kind=None)(sometimes)
torch.manual_seed(0)
torch.compile(lambda x, w: torch.sigmoid(torch.relu(torch.softmax(x @ w, -1) - 0.1)) + x)(
    torch.randn(8, 8), torch.randn(8, 8)
)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_failure_that_three_of_four_compiles_show_is_found(tmp_path: Path) -> None:
    text = SCRIPT.format(compiles=str(tmp_path / "compiles"))
    (tmp_path / "script.py").write_text(text)
    report = report_of(tmp_path, ["script.py"])
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.relu.default"]
    assert report["confirmed"] is True
    assert report["nodes_after"] <= LEFT
    assert any(note.startswith("it is flaky: it failed again in ") for note in report["notes"])
