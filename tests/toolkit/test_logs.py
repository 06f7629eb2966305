"""tcdebug logs on the run folder of a real compile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

SCRIPT = """
import torch
f = torch.compile(lambda x: torch.softmax(x * 1, -1), backend="tcdebug")
f(torch.ones(4, 4))
"""


@pytest.fixture
def logs(tcdebug: Command, tmp_path: Path) -> Command:
    """`tcdebug logs` after one run."""
    (tmp_path / "script.py").write_text(SCRIPT)
    assert tcdebug("run", "script.py").status == 0
    return lambda *args, **variables: tcdebug("logs", *args, **variables)


def test_the_newest_run_is_shown_stage_by_stage(logs: Command) -> None:
    shown = logs().stdout
    stages = ["pregrad", "passes", "lower", "inline", "schedule", "codegen", "runtime"]
    places = [shown.index(f" {name} ") for name in stages]
    assert places == sorted(places)
    assert "1 kernels; ATen: none" in shown


def test_json_lines_are_the_events(logs: Command) -> None:
    events = [json.loads(line) for line in logs("--json").stdout.splitlines()]
    assert events[0]["event"] == "run.start"
    assert events[-1]["event"] == "run.end"
    assert {"decision", "kernel", "stage.end", "compile.end"} <= {e["event"] for e in events}


def test_filters_leave_what_fits(logs: Command) -> None:
    lines = logs("--json", "--stage", "lower", "--graph", "0/0").stdout.splitlines()
    assert {json.loads(line)["stage"] for line in lines} == {"lower"}
    done = logs("--stage", "no_such_stage")
    assert done.status == 2
    assert "no event" in done.stderr


def test_a_pass_is_shown_as_a_diff(logs: Command) -> None:
    shown = logs("--diff", "passes.algebraic").stdout
    assert shown.count("aten.mul.Tensor") == 1
    assert any(line.startswith("-") and "aten.mul.Tensor" in line for line in shown.splitlines())


def test_a_torn_last_line_is_left_out(logs: Command, tmp_path: Path) -> None:
    whole = logs("--json").stdout.splitlines()
    (file,) = tmp_path.glob(".tcdebug/2*/events.jsonl")
    with file.open("ab") as end:
        end.write(b'{"ts": "2026-')
    assert logs("--json").stdout.splitlines() == whole


def test_following_ends_with_the_run(logs: Command) -> None:
    done = logs("--follow", "--json")
    assert done.status == 0
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "run.end"


def test_no_run_is_bad_usage(tcdebug: Command) -> None:
    done = tcdebug("logs")
    assert done.status == 2
    assert "tcdebug run or bisect makes one" in done.stderr
