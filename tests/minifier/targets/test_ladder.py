"""Which layer of torch a failure belongs to."""

from __future__ import annotations

import pytest

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.targets.ladder import BELOW, climb_down, in_doubt, rung

OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
OTHER = Outcome(Kind.EXCEPTION, "compile", "compile | RuntimeError")


@pytest.mark.parametrize(
    ("passing", "layer", "asked"),
    [
        ("aot_eager_decomp_partition", "layer.backend", 1),
        ("aot_eager", "layer.decompositions", 2),
        ("eager", "layer.autograd", 3),
        ("", "layer.capture", 3),
    ],
)
def test_the_layer_at_fault_is_the_last_one_switched_off(
    passing: str, layer: str, asked: int
) -> None:
    def ask(toggles: Toggles, purpose: str) -> Outcome:
        assert purpose == f"{rung(toggles)} instead"
        return Outcome(Kind.OK) if rung(toggles) == passing else WRONG

    found, rungs = climb_down(ask, Toggles())
    assert found == layer
    assert len(rungs) == asked


def test_a_layer_whose_run_fails_differently_has_not_passed() -> None:
    """For example, AOTAutograd is at fault, and each backend on it fails at a different place."""

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        if rung(toggles) == "eager":
            return Outcome(Kind.OK)
        return Outcome(Kind.EXCEPTION, "compile", f"compile | RuntimeError | {rung(toggles)}")

    found, rungs = climb_down(ask, Toggles())
    assert found == "layer.autograd"
    assert [r.backend for r in rungs] == ["aot_eager_decomp_partition", "aot_eager", "eager"]


def test_the_lowest_layer_that_is_off_determines_the_backend() -> None:
    assert rung(Toggles()) == ""
    assert rung(Toggles.parse(["layer.backend"])) == "aot_eager_decomp_partition"
    assert rung(Toggles.parse(["layer.autograd", "layer.backend"])) == "eager"


@pytest.mark.parametrize(
    ("ends", "doubtful"),
    [
        ([OK], ["layer.backend"]),
        ([WRONG, OK], ["layer.decompositions"]),
        ([OTHER, OK], ["layer.backend", "layer.decompositions"]),
        ([WRONG, OTHER, OK], ["layer.decompositions", "layer.autograd"]),
        ([OTHER, WRONG, OK], ["layer.autograd"]),
        ([WRONG, WRONG, WRONG], ["layer.capture"]),
        ([WRONG, WRONG, OTHER], ["layer.autograd", "layer.capture"]),
    ],
)
def test_layers_whose_runs_fail_differently_remain_unconfirmed(
    ends: list[Outcome], doubtful: list[str]
) -> None:
    backends = list(BELOW.values())

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        return ends[backends.index(rung(toggles))]

    assert in_doubt(WRONG, climb_down(ask, Toggles())[1]) == doubtful


def test_exceptions_in_different_places_leave_no_doubt() -> None:
    exceptions = [Outcome(Kind.EXCEPTION, "compile", f"compile | {k}") for k in range(3)]
    ends = dict(zip(BELOW.values(), [*exceptions[:2], OK], strict=True))

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        return ends[rung(toggles)]

    assert in_doubt(exceptions[2], climb_down(ask, Toggles())[1]) == ["layer.autograd"]
