"""A script that fails as a whole and is left as it is: the report and the events say why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tcdebug.minifier.investigation.report import Report, ReportedFailure, ReportedFault
from tcdebug.minifier.processes.job import REPORT, Job
from tcdebug.reading.run_dir import find
from tcdebug.supervision.script_reduction import with_small_script
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
