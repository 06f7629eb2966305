"""A script that fails as a whole: the units of AOTAutograd in it, and a run with units off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.investigation.whole_script import investigate_script, passes_without
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.targets.ladder import AUTOGRAD

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
    report = investigate_script(job, EventLog(tmp_path), 800.0, layer)
    assert report.status == "confirmed"
    (fault,) = report.faults
    assert [c.unit for c in fault.culprits] == ["autograd.output_alias"]
    assert fault.passes == "python repro.py --off=autograd.output_alias"


@pytest.mark.parametrize(("seconds", "passes"), [(200.0, True), (0.0, False)])
def test_a_script_counts_as_passing_without_a_unit_only_if_the_run_fit_the_budget(
    seconds: float, passes: bool, tmp_path: Path
) -> None:
    script = tmp_path / "right.py"
    script.write_text("import torch\n")
    job = Job("compiled", str(script), [], str(tmp_path))
    assert passes_without(job, EventLog(tmp_path), seconds, ["passes.cse"]) is passes
