"""A script that fails as a whole: the units of AOTAutograd in it, and a run with units off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.events.log import EventLog, decoded
from tcdebug.compiler.events.search_events import CandidateRan
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.layer_names import AUTOGRAD
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.whole_script import investigate_script, passes_without
from tcdebug.minifier.processes.job import Job

COPIED_ALIAS = """
import types
import torch
import torch._dynamo
from torch._functorch._aot_autograd import functional_utils
views = functional_utils._functionalization
parts = {name: getattr(views, name) for name in dir(views) if not name.startswith("__")}
parts["apply_view_meta_sequence"] = lambda *args: views.apply_view_meta_sequence(*args).clone()
functional_utils._functionalization = types.SimpleNamespace(**parts)

x = torch.zeros(2, 3)
torch.compile(lambda x: x[0], backend="aot_eager")(x).add_(1)
assert x.sum() == 3
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("warm")
def test_with_the_layer_known_its_unit_is_found_and_the_repro_passes_without_it(
    tmp_path: Path,
) -> None:
    script = tmp_path / "aliased.py"
    script.write_text(COPIED_ALIAS)
    job = Job("compiled", str(script), [], str(tmp_path))
    layer = LayerFinding(AUTOGRAD, AUTOGRAD)
    signature = "script | AssertionError | AssertionError | assert x.sum() == 3"
    seen = Outcome(Kind.EXCEPTION, "script", signature)
    report = investigate_script(job, EventLog(tmp_path), 800.0, layer, alone=[seen, seen])
    assert report.status == "confirmed"
    alone = [run for run in _runs(tmp_path) if run["toggles"] == ["layer.decompositions"]]
    assert len(alone) == 3, "the run that lists the units, and the fourth and fifth failure"
    (fault,) = report.faults
    assert [c.unit for c in fault.culprits] == ["autograd.output_alias"]
    assert fault.passes == "python repro.py --off=autograd.output_alias"


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("seconds", "passes"), [(200.0, True), (0.0, False)])
def test_a_script_counts_as_passing_without_a_unit_only_if_the_run_fit_the_budget(
    seconds: float, passes: bool, tmp_path: Path
) -> None:
    script = tmp_path / "right.py"
    script.write_text("import torch\n")
    job = Job("compiled", str(script), [], str(tmp_path))
    assert passes_without(job, EventLog(tmp_path), seconds, ["passes.cse"]) is passes


SIGNATURE = (
    "script | torch._dynamo.exc.BackendCompilerFailed | torch._dynamo.exc.BackendCompilerFailed: "
    "backend=<name> raised: ValueError: planted"
)
GATED = """
import tcdebug
import torch

@tcdebug.gated("negate")
def negate(graph):
    raise ValueError("planted")

def backend(graph, inputs):
    negate(graph.graph)
    return graph

torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
"""


@pytest.mark.usefixtures("warm")
def test_a_script_that_has_failed_before_is_run_fewer_times(tmp_path: Path) -> None:
    script = tmp_path / "gated.py"
    script.write_text(GATED)
    job = Job("compiled", str(script), [], str(tmp_path))
    seen = Outcome(Kind.EXCEPTION, "script", SIGNATURE, "planted")
    other = Outcome(Kind.EXCEPTION, "script", "script | KeyError", "KeyError: 'planted'")
    runs = [seen, other, seen, seen]
    report = investigate_script(job, EventLog(tmp_path), 250.0, seen=runs, reserved=10.0)
    assert report.failure is not None and report.failure.signature == SIGNATURE
    assert report.status == "confirmed"
    assert [c.unit for c in report.culprits] == ["user.negate"]
    unchanged = [run for run in _runs(tmp_path) if not run["toggles"]]
    assert len(unchanged) == 2, "the run that lists the units, and the fifth failure"


EITHER = """
import tcdebug
import torch

seen = []

@tcdebug.gated("first")
def first(graph):
    seen.append("first")

@tcdebug.gated("second")
def second(graph):
    seen.append("second")

def backend(graph, inputs):
    first(graph.graph)
    second(graph.graph)
    return graph

torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
assert not seen
"""


@pytest.mark.usefixtures("warm")
def test_a_script_that_each_of_two_units_makes_fail_is_confirmed_with_both_off(
    tmp_path: Path,
) -> None:
    script = tmp_path / "either.py"
    script.write_text(EITHER)
    job = Job("compiled", str(script), [], str(tmp_path))
    report = investigate_script(job, EventLog(tmp_path), 250.0)
    assert report.status == "confirmed"
    (fault,) = report.faults
    assert [c.unit for c in fault.culprits] == ["user.first"]
    assert fault.alternatives == ["user.second"]
    assert fault.passes == "python repro.py --off=user.first --off=user.second"


HIDDEN = (
    EITHER.replace('seen.append("first")', 'raise ValueError("the first")')
    .replace('seen.append("second")', 'raise TypeError("the second")')
    .replace("assert not seen", "")
)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_repro_of_a_fault_that_another_one_hides_has_the_other_off(tmp_path: Path) -> None:
    script = tmp_path / "hidden.py"
    script.write_text(HIDDEN)
    job = Job("compiled", str(script), [], str(tmp_path))
    report = investigate_script(job, EventLog(tmp_path), 250.0)
    assert report.status == "confirmed"
    assert [fault.culprits[0].unit for fault in report.faults] == ["user.first", "user.second"]
    assert [fault.fails for fault in report.faults] == ["python repro.py", "python repro_2.py"]
    assert [fault.passes for fault in report.faults] == [
        "python repro.py --off=user.first",
        "python repro_2.py --off=user.second",
    ]


def _runs(folder: Path) -> list[dict[str, Any]]:
    """Return the data of the candidates that ran, rather than had a known answer."""
    lines = [
        line for file in folder.glob("events*.jsonl") for line in file.read_bytes().splitlines()
    ]
    runs = [e["data"] for e in decoded(lines, dict[str, Any]) if e["event"] == CandidateRan.kind]
    return [run for run in runs if not run["cached"]]
