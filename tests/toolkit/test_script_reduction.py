"""A script that fails as a whole: why it is left as it is, and the time that is kept for it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tcdebug.compiler.events.search_events import ReproVerify
from tcdebug.minifier.cases.script_text import ScriptText
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

Script = Callable[[str], str]
SMALLER = ".tcdebug/*-bisect/smaller.py"


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


LOST_SIDE_EFFECT = """
import torch
import torch._dynamo.side_effects as effects

effects.SideEffects.codegen_update_mutated = lambda self, codegen, *args, **options: None


class Counter:
    def __init__(self):
        self.calls = 0
        self.names = []


def model(x, counter):
    counter.calls += 1
    y = x.sin()
    return y + 1


def main():
    counter = Counter()
    for step in range(3):
        name = f"step {step}"
        counter.names.append(name)
        result = torch.compile(model, backend="eager")(torch.ones(3), counter)
        print(name, result.shape)
    assert counter.calls == 3, counter.calls


main()
"""


@pytest.mark.slow
def test_a_minimisation_that_is_interrupted_says_where_the_smallest_version_is(
    script: Script, tmp_path: Path, environment: Mapping[str, str], warm_server: Any
) -> None:
    name = script(LOST_SIDE_EFFECT)
    process = warm_server.popen(
        [warm_server.path, "-m", "tcdebug", "bisect", "--json", name],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (found := [*tmp_path.glob(SMALLER)]):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    (path,) = found
    lines = ScriptText(path.read_text()).size
    (note,) = [n for n in json.loads(output)["notes"] if "was not minimised" in n]
    assert note == (
        f"the script was not minimised: interrupted. A version with {lines} lines failed in a "
        f"fork, and was not checked further: {path.relative_to(tmp_path)}"
    )


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
