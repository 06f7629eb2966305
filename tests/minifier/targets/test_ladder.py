"""Which layer of torch a failure belongs to."""

from __future__ import annotations

import pytest

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.targets.ladder import climb_down, rung

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")


@pytest.mark.parametrize(
    ("passing", "layer", "asked"),
    [
        ("aot_eager_decomp_partition", "layer.backend", 1),
        ("aot_eager", "layer.decompositions", 2),
        ("eager", "layer.autograd", 3),
        ("", "layer.capture", 3),
    ],
)
def test_the_layer_at_fault_is_the_last_one_that_went_off(
    passing: str, layer: str, asked: int
) -> None:
    def ask(toggles: Toggles, purpose: str) -> Outcome:
        assert purpose == f"{rung(toggles)} instead"
        return Outcome(Kind.OK) if rung(toggles) == passing else WRONG

    found, rungs = climb_down(ask, Toggles())
    assert found == layer
    assert len(rungs) == asked


def test_a_rung_that_fails_in_another_way_is_no_pass() -> None:
    """As where AOTAutograd is at fault and each backend on it trips over that somewhere else."""

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        if rung(toggles) == "eager":
            return Outcome(Kind.OK)
        return Outcome(Kind.EXCEPTION, "compile", f"compile | RuntimeError | {rung(toggles)}")

    found, rungs = climb_down(ask, Toggles())
    assert found == "layer.autograd"
    assert [r.backend for r in rungs] == ["aot_eager_decomp_partition", "aot_eager", "eager"]


def test_the_lowest_layer_that_is_off_decides_which_backend_stands_in() -> None:
    assert rung(Toggles()) == ""
    assert rung(Toggles.parse(["layer.backend"])) == "aot_eager_decomp_partition"
    assert rung(Toggles.parse(["layer.autograd", "layer.backend"])) == "eager"
