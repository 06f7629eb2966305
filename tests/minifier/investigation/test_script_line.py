"""The statement at which Dynamo goes wrong, in a script that fails as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.investigation.script_line import find_line
from tcdebug.minifier.processes.job import Job

SCRIPT = """
import torch

def make(op):
    def fn(x):
        y = x + 1
        z = op(y, x)
        return z.neg()
    return fn

for op, right in ((torch.Tensor.add, -7.0), (torch.Tensor.mul, {right})):
    result = torch.compile(make(op), backend="inductor", fullgraph=True)(torch.tensor(3.0))
    assert result.item() == right, result
"""


@pytest.mark.usefixtures("warm")
def test_a_script_that_dynamo_makes_fail_leads_to_the_statement(tmp_path: Path) -> None:
    script = tmp_path / "stale.py"
    script.write_text(SCRIPT.format(right=-12.0))
    found = find_line(Job("compiled", str(script), [], str(tmp_path)), EventLog(tmp_path), 500.0)
    assert found is not None
    assert found.unit == "dynamo.line"
    assert found.subject.endswith("stale.py:7: z = op(y, x)  (call of closure variable `op`)")


@pytest.mark.usefixtures("warm")
def test_no_statement_is_named_if_eager_fails_too(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(SCRIPT.format(right=0.0))
    job = Job("compiled", str(script), [], str(tmp_path))
    assert find_line(job, EventLog(tmp_path), 500.0) is None
