"""The first mistakes of users, and the messages about them."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import RunEnd
from tcdebug.compiler.events.search_events import BisectResult
from tcdebug.display import tables
from tcdebug.fuzz.followup import minified
from tcdebug.fuzz.hunt import Hunt
from tcdebug.minifier.investigation.report import Report, ReportedFailure
from tcdebug.supervision.eager_failures import culprit_notes, stdin_notes

Command = Callable[..., Any]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("bisekt", "No such command 'bisekt'. Did you mean 'bisect'?"),
        ("bogus", "No such command 'bogus'. The commands are bisect,"),
        ("model.py", "Try 'tcdebug bisect model.py' or 'tcdebug run model.py'."),
    ],
)
def test_a_word_that_is_no_command_gets_only_a_suggestion_that_fits(
    inside: Command, tmp_path: Path, word: str, said: str
) -> None:
    (tmp_path / "model.py").touch()
    done = inside(word)
    assert done.status == 2
    assert said in done.stderr


def test_a_syntax_error_is_said_as_such_and_nothing_is_run(inside: Command, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch\ndef f(:\n")
    done = inside("bisect", "-q", "script.py")
    assert done.status == 5
    assert "exception in script: SyntaxError: invalid syntax (script.py, line 2)" in done.stdout
    assert "the script is not valid Python: nothing of it was run" in done.stdout
    assert "not minimised" not in done.stdout


@pytest.mark.parametrize(
    ("command", "status"), [("run", 1), ("explain", 1), ("values", 1), ("repro", 5)]
)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"import torch\ndef f(:\n", "SyntaxError: invalid syntax (my script.py, line 2)"),
        (b"  x = 1\n", "IndentationError: unexpected indent (my script.py, line 1)"),
        (b"x = 1\0", "null bytes (my script.py"),
    ],
    ids=["syntax", "indentation", "no text"],
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
def test_a_missing_module_is_said_before_a_process_starts(
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
    done = inside("run", "-m", "./mine.py")
    assert done.stderr.endswith("no module named './mine.py'; without -m, ./mine.py is a script\n")


def test_a_script_that_reads_stdin_is_told_that_there_is_none() -> None:
    failure = ReportedFailure("exception", "eager", "script", "EOFError: EOF when reading a line")
    assert "gives it none" in stdin_notes(Report("fails_in_eager", failure))[0]
    assert stdin_notes(Report("no_failure")) == []


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


def test_the_list_of_runs_says_how_each_ended(
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


def test_what_is_found_at_the_end_of_a_campaign_does_not_prolong_it(tmp_path: Path) -> None:
    unused: Any = None
    hunt = Hunt(unused, unused, "tcdebug", unused, None, seconds=75.0)
    assert hunt._shrink_until() <= hunt._began + 75.0
    hunt._began = time.monotonic() - 75.0
    assert hunt._shrink_until() <= time.monotonic() + 5.0
    assert hunt.seconds_left is not None and hunt.seconds_left <= 0.0


def test_without_time_a_finding_is_not_bisected_and_says_so(tmp_path: Path) -> None:
    from tcdebug.fuzz.findings import Finding  # noqa: PLC0415 # with its program
    from tcdebug.strategies.program import Program  # noqa: PLC0415 # beside it

    finding = Finding("wrong", "wrong", "tcdebug", "", Program((), (), ()), "2.13")
    assert "no time was left" in minified(finding, tmp_path, left=3.0).note
