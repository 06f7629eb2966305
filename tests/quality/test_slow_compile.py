"""A script that fails because one of its graphs compiles slowly leads to the unit that is slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import report_of

SLOW_LOWERING = """
import time
import torch
from torch._inductor import lowering

right = lowering.lowerings[torch.ops.aten.tanh.default]


def slow(*args, **kwargs):
    end = time.process_time() + 12
    while time.process_time() < end:
        pass
    return right(*args, **kwargs)


lowering.lowerings[torch.ops.aten.tanh.default] = slow
start = time.process_time()
torch.compile(lambda x: x.tanh() + 1)(torch.ones(4))
took = time.process_time() - start
assert took < 10, took
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
def test_the_unit_of_a_slow_compile_is_named(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_LOWERING)
    report = report_of(tmp_path, [str(script)])
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.tanh.default"]
    assert (report["layer"], report["failure"]["kind"]) == ("layer.backend", "slow")
    assert report["faults"][0]["stages"] is None, "the texts of stages would take even longer"
    assert any("the script passes with" in note for note in report["notes"])
