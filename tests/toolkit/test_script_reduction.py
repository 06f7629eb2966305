"""A script that fails as a whole: why it is left as it is, and the time that is kept for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tcdebug.compiler.events.search_events import ReproVerify
from tcdebug.minifier.investigation.report import Report, ReportedFailure, ReportedFault
from tcdebug.minifier.processes.job import REPORT, Job
from tcdebug.reading.run_dir import find
from tcdebug.supervision.script_reduction import (
    longest_run_of_the_repro,
    time_to_minimise,
    with_small_script,
)
from tcdebug.supervision.script_search import seconds_to_confirm
from tcdebug.supervision.supervisor import begin


def test_a_note_and_an_event_say_why_a_program_that_fails_as_a_whole_is_not_minimised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ".tcdebug" / "commands" / "code-1.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    supervisor = begin("minify", Job("search", str(script), [], ""), quiet=True, fresh=True)
    failure = ReportedFailure("crash", "script | SIGSEGV", "script")
    fault = ReportedFault(failure, fails="python repro.py")
    found = with_small_script(supervisor, Report("unconfirmed", failure, faults=[fault]))
    reason = "it is started by -m, -c, a command or a call, and only a script can be rewritten"
    assert found.notes == [f"the script was not minimised: {reason}"]
    written = msgspec.json.decode((supervisor.folder / REPORT).read_bytes(), type=Report)
    assert written.notes == found.notes
    events = find(str(supervisor.folder)).events()
    (said,) = [r["data"] for r in events if r["event"] == "fallback"]
    assert said == {"what": "the script was not minimised", "reason": reason}


@pytest.mark.parametrize(
    ("repro_took", "left", "minimises_for"), [(2.0, 100, 80), (30.0, 100, 70), (60.0, 100, 50)]
)
def test_minimising_leaves_the_time_that_the_small_script_needs_to_be_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    repro_took: float,
    left: int,
    minimises_for: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    supervisor = begin("bisect", Job("search", "train.py", [], ""), quiet=True, fresh=True)
    supervisor.log.emit(ReproVerify("repro.py", True, 1, repro_took))
    supervisor.log.emit(ReproVerify("repro.py", True, 1, repro_took / 2))
    assert longest_run_of_the_repro(supervisor) == repro_took
    assert time_to_minimise(float(left), repro_took) == minimises_for


@pytest.mark.parametrize(("budget", "kept"), [(300.0, 45.0), (50.0, 25.0)])
def test_the_search_for_a_unit_leaves_the_time_in_which_fresh_processes_confirm_the_layer(
    budget: float, kept: float
) -> None:
    assert seconds_to_confirm(5.0, budget) == kept
