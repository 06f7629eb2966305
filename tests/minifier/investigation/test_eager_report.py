"""The report of a script that fails in eager as well."""

from __future__ import annotations

from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CodeLoaded, ProgramTraced
from tcdebug.minifier.investigation.eager_report import eager_report


def test_a_script_that_fails_without_compiled_code_fails_in_eager(tmp_path: Path) -> None:
    output = tmp_path / "eager.log"
    output.write_text("Traceback\nValueError: no\n\n")
    report = eager_report(tmp_path, output, "it raised")
    assert (report.status, report.layer) == ("fails_in_eager", "layer.script")
    assert report.failure is not None
    assert report.failure.message == "ValueError: no"


def test_nothing_is_claimed_about_a_script_that_runs_code_of_an_earlier_run(tmp_path: Path) -> None:
    output = tmp_path / "eager.log"
    output.write_text("AssertionError: not close\n")
    EventLog(tmp_path).emit(CodeLoaded("/models/m.pt2"))
    report = eager_report(tmp_path, output, "it raised")
    assert (report.status, report.layer, report.culprits) == ("unconfirmed", "", [])
    assert "it loads code that was compiled before: /models/m.pt2." in report.notes[0]


def test_nothing_is_claimed_about_a_script_that_records_a_function_with_a_tracer(
    tmp_path: Path,
) -> None:
    output = tmp_path / "eager.log"
    output.write_text("AssertionError: not close\n")
    EventLog(tmp_path).emit(ProgramTraced("torch.jit.trace"))
    report = eager_report(tmp_path, output, "it raised")
    assert (report.status, report.layer, report.culprits) == ("unconfirmed", "", [])
    assert report.notes[0].startswith("it calls torch.jit.trace. ")


RAISED_IN_COND = """Traceback (most recent call last):
  File "script.py", line 3, in <module>
    torch.cond(x.sum() > 0, lambda: x, lambda: x * 2)
torch._dynamo.exc.UncapturedHigherOrderOpError: it works only if captured. Got graph break/error:

Encountered aliasing during higher order op tracing

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""


def test_an_operator_that_torch_compiles_itself_is_what_fails_in_eager(tmp_path: Path) -> None:
    output = tmp_path / "eager.log"
    output.write_text(RAISED_IN_COND)
    report = eager_report(tmp_path, output, "it raised")
    assert report.failure is not None
    assert report.failure.message == (
        "torch._dynamo.exc.UncapturedHigherOrderOpError: it works only if captured. "
        "Got graph break/error:"
    )
    assert report.notes[0].startswith("torch compiles operators such as cond, scan and while_loop")
