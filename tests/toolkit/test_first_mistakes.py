"""The first mistakes of users, and the messages about them."""

from __future__ import annotations

import errno
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tcdebug.cli.main import disk_problem
from tcdebug.cli.script_argument import script_hint
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import RunEnd
from tcdebug.compiler.events.search_events import BisectResult
from tcdebug.display import tables
from tcdebug.fuzz.followup import minified
from tcdebug.fuzz.hunt import Hunt
from tcdebug.minifier.investigation.report import Report, ReportedFailure
from tcdebug.minifier.investigation.script_layers import EAGER_IS_NO_EVIDENCE
from tcdebug.minifier.processes.job import SessionError
from tcdebug.supervision.eager_failures import (
    ONCE_PASSED,
    culprit_notes,
    input_notes,
    once_passed,
    script_problem,
)
from tcdebug.supervision.recorded_graphs import NO_GRAPH
from tcdebug.supervision.script_search import after_repeats

Command = Callable[..., Any]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("bisekt", "No such command 'bisekt'. Did you mean 'bisect'?"),
        ("bogus", "No such command 'bogus'. The commands are bisect,"),
        ("model.py", "Try 'tcdebug bisect model.py' or 'tcdebug run model.py'."),
    ],
)
def test_a_suggestion_for_an_unknown_command_is_similar_to_it(
    inside: Command, tmp_path: Path, word: str, said: str
) -> None:
    (tmp_path / "model.py").touch()
    done = inside(word)
    assert done.status == 2
    assert said in done.stderr


def test_a_syntax_error_is_reported_as_such_and_nothing_is_run(
    inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("import torch\ndef f(:\n")
    done = inside("bisect", "-q", "script.py")
    assert done.status == 5
    assert "exception in script: SyntaxError: invalid syntax (script.py, line 2)" in done.stdout
    assert "the script is not valid Python: nothing of it was run" in done.stdout
    assert "not minimised" not in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        b"# -*- coding: latin-1 -*-\nx = 'caf\xe9'\n",
        b"\xef\xbb\xbfx = 1\n",
        b'{"cells": [1]}',
        b"#!/usr/bin/env python\nx = 1\n",
        b"x = 1\r\ny = 2\r\n",
    ],
)
def test_a_file_that_python_runs_is_not_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "script.py").write_bytes(text)
    assert script_problem(str(tmp_path / "script.py")) is None


@pytest.mark.parametrize(
    ("command", "status"), [("run", 1), ("explain", 1), ("values", 1), ("repro", 5)]
)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"import torch\ndef f(:\n", "SyntaxError: invalid syntax (my script.py, line 2)"),
        (b"  x = 1\n", "IndentationError: unexpected indent (my script.py, line 1)"),
        (b"x = 1\0", "null bytes (my script.py"),
        (b'print "x"\n', "SyntaxError: Missing parentheses in call to 'print'"),
        (b"#!/bin/sh\nexec python x.py\n", "the first line is '#!/bin/sh': name the Python scr"),
        (b'{"cells": [], "nbformat": 4}', "my script.py is a Jupyter notebook"),
        (b"# caf\xe9\n", "SyntaxError: invalid or missing encoding declaration (my script.py)"),
        (b"\n\n# caf\xe9\n", "SyntaxError: byte 0xe9 is not utf-8 (my script.py, line 3)"),
        (b"# coding: ascii\n#\n# \xe9\n", "byte 0xe9 is not ascii (my script.py, line 3)"),
        (b"# coding: nope\n", "SyntaxError: unknown encoding: nope (my script.py)"),
    ],
)
def test_a_file_that_is_not_python_is_refused_before_a_process_starts(
    inside: Command, tmp_path: Path, command: str, status: int, text: bytes, said: str
) -> None:
    (tmp_path / "my script.py").write_bytes(text)
    done = inside(command, "my script.py")
    assert done.status == status
    assert "error TCD020: " in done.stderr and said in done.stderr
    assert not (tmp_path / ".tcdebug").exists()


@pytest.mark.parametrize(
    ("command", "status"), [("run", 1), ("explain", 1), ("values", 1), ("repro", 5), ("bisect", 5)]
)
def test_a_missing_module_is_reported_before_a_process_starts(
    inside: Command, tmp_path: Path, command: str, status: int
) -> None:
    (tmp_path / "script.py").write_text('"""A script."""\nimport torch, not_there.at_all\n')
    done = inside(command, "script.py")
    assert done.status == status
    said = done.stdout + done.stderr
    assert "ModuleNotFoundError: No module named 'not_there' (script.py, line 2)" in said
    assert f"install it for {sys.executable}, or install tcdebug in the script's env" in said


def test_a_module_that_does_not_exist_is_refused_before_a_process_starts(
    inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("")
    for name in ("not_there_at_all", "not_there.at.all", ".relative"):
        done = inside("bisect", "-m", name)
        assert done.status == 2 and "no module named" in done.stderr
        assert done.stderr.endswith("among installed packages: run tcdebug in its folder\n")
    done = inside("run", "-m", "./mine.py")
    assert done.stderr.endswith("no module named './mine.py': without -m, ./mine.py is a script\n")


def test_the_hint_for_a_file_that_cannot_be_read_is_about_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "script.py").touch()  # a test that runs as root can read every file
    script = str(tmp_path / "script.py")
    assert script_hint(script) == f"check its permissions: ls -l {script}"


def test_a_note_says_that_a_script_gets_no_stdin_but_a_file() -> None:
    failure = ReportedFailure("exception", "eager", "script", "EOFError: EOF when reading a line")
    assert "gives it only a file" in input_notes(Report("fails_in_eager", failure))[0]
    assert input_notes(Report("no_failure")) == []


def test_only_a_script_that_passed_before_is_not_said_to_fail_in_eager() -> None:
    failure = ReportedFailure("exception", "eager", "script", "checkpoint.pt exists")
    report = Report("fails_in_eager", failure, layer="script", notes=["exit status 1"])
    passed = once_passed(report, 0)
    assert (passed.status, passed.layer) == ("unconfirmed", "")
    assert passed.notes == [ONCE_PASSED, "exit status 1"]
    assert once_passed(report, 1) is report
    counting = Report("fails_in_eager", failure, notes=[EAGER_IS_NO_EVIDENCE])
    assert once_passed(counting, 0) is counting


def test_a_note_says_where_the_arguments_of_a_script_go() -> None:
    for message in (
        "x.py: error: the following arguments are required: --lr",
        "x.py: error: unrecognized arguments: --seconds 5",
        "x.py: error: argument --lr: invalid float value: 'x'",
    ):
        failure = ReportedFailure("exception", "eager", "script", message)
        assert "put them after its name" in input_notes(Report("fails_in_eager", failure))[0]
        assert input_notes(Report("confirmed", failure)) == []
    other = ReportedFailure("exception", "eager", "script", "RuntimeError: error: bad")
    assert input_notes(Report("fails_in_eager", other)) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("package", "name a script in it, or run it with -m package"),
        ("plain", "name a script in it, such as plain/model.py"),
        ("", "give a script"),
        ("nowhere/script.py", "there is no folder 'nowhere'"),
        ("scirpt.py", "did you mean 'script.py'?"),
        ("plain/modle.py", "did you mean 'plain/model.py'?"),
        (
            "20260101-000000-bisect",
            "a run, whose repro is .tcdebug/20260101-000000-bisect/repro.py",
        ),
        ("latest", "it is a run, whose repro is .tcdebug/20260101-000000-bisect/repro.py"),
        (".tcdebug/20260101-000000-bisect", "it is a run, whose repro is .tcdebug/2026"),
    ],
)
def test_the_error_for_a_name_that_is_not_a_script_says_what_to_give_instead(
    inside: Command, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "script.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").touch()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "model.py").touch()
    run = tmp_path / ".tcdebug" / "20260101-000000-bisect"
    run.mkdir(parents=True)
    run_folder.write_info(run, "bisect")
    (run / "repro.py").touch()
    for command in ("bisect", "explain"):
        done = inside(command, name)
        assert done.status == 2
        assert said in done.stderr


def test_a_run_without_a_repro_and_a_folder_without_similar_names_get_their_own_messages(
    inside: Command, tmp_path: Path
) -> None:
    run = tmp_path / ".tcdebug" / "20260101-000000-run"
    run.mkdir(parents=True)
    run_folder.write_info(run, "run")
    assert "it is a run, and has no repro" in inside("minify", "latest").stderr
    assert f"'x.py' does not exist: the folder is {tmp_path}" in inside("run", "x.py").stderr


@pytest.mark.parametrize(
    "option", ["--seconds=-1", "--seconds=0", "--reruns=0", "--timeout=0", "--memory=-2"]
)
def test_a_limit_of_zero_is_a_usage_error(inside: Command, tmp_path: Path, option: str) -> None:
    (tmp_path / "script.py").touch()
    done = inside("bisect", option, "script.py")
    assert done.status == 2
    assert f"Invalid value for '{option.partition('=')[0]}'" in done.stderr


def test_a_note_says_that_an_option_after_the_script_is_passed_to_it(
    inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("def f(:\n")
    note = "--seconds is passed to script.py: options of tcdebug go before the script"
    assert note in inside("bisect", "script.py", "--seconds=5").stderr
    assert note in inside("bisect", "script.py", "x", "--seconds", "5").stderr
    for words in (["script.py", "--lr", "5"], ["--seconds", "5", "script.py", "-j"]):
        assert "is passed to" not in inside("bisect", *words).stderr
    assert "is passed to" not in inside("bisect", "-q", "script.py", "--seconds=5").stderr


@pytest.mark.parametrize(
    ("variables", "note"),
    [
        ({}, NO_GRAPH),
        pytest.param(
            {"TORCH_COMPILE_DISABLE": "1"},
            "torch.compile does nothing, because TORCH_COMPILE_DISABLE is 1: unset it, and search "
            "again",
            marks=pytest.mark.slow,  # no process that has imported torch can be used
        ),
    ],
)
def test_a_script_without_a_compiled_graph_is_not_called_healthy_without_a_note(
    tcdebug: Command, tmp_path: Path, variables: dict[str, str], note: str
) -> None:
    (tmp_path / "script.py").write_text("import torch\nf = torch.compile(torch.sin)\n")
    done = tcdebug("bisect", "--json", "script.py", **variables)
    assert done.status == 4
    assert done.json["status"] == "no_failure"
    assert done.json["notes"] == [note]
    assert done.json["reruns"] == 1


def test_a_unit_that_does_not_exist_is_refused_in_the_variable_too(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("def f(:\n")
    monkeypatch.setenv("TCDEBUG_OFF", "fuse.vertical,fuse.vertcal")
    done = inside("bisect", "script.py")
    assert done.status == 2
    assert "TCD005: no unit 'fuse.vertcal'; the nearest are: fuse.vertical" in done.stderr
    monkeypatch.setenv("TCDEBUG_OFF", "fuse.vertical,all:3,site:1f0c9a7be2")
    assert inside("bisect", "script.py").status == 5


def test_a_check_that_compares_nothing_says_so(tcdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\n"
        "@torch.compiler.disable\n"
        "def sine(x):\n    return x.sin()\n"
        "@torch.compile\n"
        "def step(x):\n    return sine(x)\n"
        "step(torch.ones(2))\n"
    )
    done = tcdebug("run", "--check", "script.py")
    assert done.status == 0
    assert (
        "nothing was compared: compiled functions were called, but Dynamo gave no graph to a "
        "backend" in done.stderr
    )


def test_a_full_disk_is_not_called_a_bug_of_tcdebug(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "job.key")
    assert disk_problem(full) == "No space left on device: job.key"
    assert disk_problem(OSError(errno.EROFS, "Read-only file system")).endswith(str(Path.cwd()))
    ended = SessionError(f"Traceback (most recent call last):\n  ...\nOSError: {full}\n")
    assert disk_problem(ended) == "No space left on device, in the process that runs the script"
    assert disk_problem(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) == ""
    assert disk_problem(SessionError("OSError: [Errno 5] Input/output error")) == ""
    assert disk_problem(ValueError("OSError")) == ""


def test_the_command_help_suggests_the_option(inside: Command) -> None:
    assert "Try 'tcdebug --help'" in inside("help").stderr


def test_a_run_that_cannot_be_kept_in_the_working_folder_says_where_it_is(
    inside: Command, tmp_path: Path
) -> None:
    (tmp_path / ".tcdebug").touch()
    (tmp_path / "script.py").write_text("def f(:\n")
    done = inside("bisect", "script.py")
    assert done.status == 5
    assert f"{tmp_path}/.tcdebug is not writable: the run is in /" in done.stdout


def test_the_end_of_an_interrupted_search_keeps_the_culprit_that_was_printed() -> None:
    records = [{"event": "bisect.result", "unit": "lower.x", "data": {"subject": "sin"}}]
    assert culprit_notes([]) == []
    assert culprit_notes(records) == ["culprit so far, not confirmed: lower.x at sin"]


def ended(base: Path, command: str, status: int, *files: str) -> str:
    folder = run_folder.create(command, base)
    log = EventLog(folder, own=True)
    log.emit(RunEnd(status, 1.0))
    for file in files:
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
    return folder.name


def test_the_list_of_runs_shows_how_each_ended(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = tmp_path / ".tcdebug"
    expected = {
        ended(base, "run", 1, "graphs/0/repro.py"): "exit 1, 1 repro",
        ended(base, "run", 0): "exit 0",
        ended(base, "bisect", 5): "fails_in_eager",
        ended(base, "bisect", 130): "interrupted",
    }
    going = run_folder.create("bisect", base)
    EventLog(going, own=True).emit(BisectResult("sin", 3, False))
    rows = inside("logs", "ls", "--json").json
    assert {r["run"]: r["result"] for r in rows} == {**expected, going.name: "running"}
    monkeypatch.setattr("tcdebug.commands.logs.ls.is_alive", lambda pid: False)
    assert inside("logs", "ls", "--json").json[0]["result"] == "no end"


def test_a_name_is_not_broken_by_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, width=20, force_terminal=True, soft_wrap=True)
    monkeypatch.setattr(tables, "results", lambda: console)
    tables.show_table(("unit", "what it does"), [("lower.aten.native_layer_norm.default", "x y")])
    assert "lower.aten.native_layer_norm.default  x y" in text.getvalue()


def test_a_finding_at_the_end_of_a_campaign_does_not_prolong_it(tmp_path: Path) -> None:
    unused: Any = None
    end = time.monotonic() + 75.0
    hunt = Hunt(unused, unused, "tcdebug", unused, None, until=end, reserve=10.0)
    assert hunt._shrink_until() == end - 10.0
    assert hunt.seconds_left is not None and 60.0 < hunt.seconds_left <= 75.0


def test_without_time_a_finding_is_not_bisected_and_says_so(tmp_path: Path) -> None:
    from tcdebug.fuzz.findings import Finding  # noqa: PLC0415 # with its program
    from tcdebug.strategies.program import Program  # noqa: PLC0415 # beside it

    finding = Finding("wrong", "wrong", "tcdebug", "", Program((), (), ()), "2.13")
    assert "no time was left" in minified(finding, tmp_path, left=30.0).note, "it ends 20 s late"


def test_a_script_is_healthy_though_the_budget_ends_while_its_graphs_are_run_again() -> None:
    healthy, late = Report("no_failure", notes=["first"]), Report("budget")
    note = "the budget was used up before each graph had run 5 times"
    assert after_repeats(healthy, late) == Report("no_failure", notes=["first", note])
    unjudged = after_repeats(Report("unjudged"), late)
    assert (unjudged.status, unjudged.notes) == ("unjudged", [note])
    failing = Report("budget", ReportedFailure("wrong", "forward | wrong value"))
    assert after_repeats(healthy, failing) is failing, "a graph fails at times"
    assert after_repeats(healthy, None) is healthy
