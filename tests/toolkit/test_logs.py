"""tcdebug logs on the run folder of a real compile."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.events import run_folder

Command = Callable[..., Any]

SCRIPT = """
import torch
f = torch.compile(lambda x: torch.softmax(x * 1, -1), backend="tcdebug")
f(torch.ones(4, 4))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, kernels: Path, warm_python: str) -> Path:
    """The folder of one run, which tests copy."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "script.py").write_text(SCRIPT)
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    environment = {**plain, "TCDEBUG_CACHE_DIR": str(kernels), "OMP_NUM_THREADS": "1"}
    command = [warm_python, "-m", "tcdebug", "run", "script.py"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return folder / ".tcdebug"


@pytest.fixture
def logs(tcdebug: Command, tmp_path: Path, recorded: Path) -> Command:
    """`tcdebug logs` after one run."""
    shutil.copytree(recorded, tmp_path / ".tcdebug", symlinks=True)
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


def test_filters_keep_matching_events(logs: Command) -> None:
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


def test_a_missing_run_is_a_usage_error(tcdebug: Command) -> None:
    done = tcdebug("logs")
    assert done.status == 2
    assert "make one with tcdebug run or tcdebug bisect" in done.stderr


def test_runs_are_listed_with_what_they_were_and_how_they_ended(logs: Command) -> None:
    (run,) = logs("ls", "--json").json
    assert run["command"] == "run script.py"
    assert run["result"] == "exit 0"
    assert run["run"] in logs("ls").stdout


def test_a_summary_says_where_the_time_went(logs: Command) -> None:
    summary = logs("summary", "--json").json
    assert {"dynamo", "aot", "lower", "codegen", "runtime"} <= {
        s["stage"] for s in summary["stages"]
    }
    assert [k["moved"] for k in summary["kernels"]] == [128]
    assert 0 < summary["compile_seconds"] < summary["seconds"]
    shown = logs("summary").stdout
    assert "time by stage" in shown
    assert summary["kernels"][0]["name"] in shown


def test_events_are_asked_for_by_kind_and_line(logs: Command) -> None:
    done = logs("query", "--event", "stage", "--stage", "lower", "--json")
    assert {json.loads(line)["event"] for line in done.stdout.splitlines()} == {
        "stage.start", "stage.end",
    }  # fmt: skip
    assert logs("query", "--line", "script.py").status == 2
    nothing = logs("query", "--event", "graph.break")
    assert nothing.status == 2
    assert "its kinds are " in nothing.stderr


def test_a_trace_for_perfetto_has_complete_events_only(logs: Command, tmp_path: Path) -> None:
    assert logs("export", "-o", "trace.json").status == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"X"}
    assert {"aot", "lower", "run"} <= {e["name"] for e in events}
    assert logs("export", "-o", "/no/such/folder/trace.json").status == 2


def test_remarks_say_what_was_fused_and_where_kernels_come_from(logs: Command) -> None:
    shown = logs("--remarks").stdout
    assert "fused: 5 nodes in cpp_red_fused" in shown or "fused: 4 nodes in cpp_red_fused" in shown
    assert re.search(r"aten\.exp\.default \S*/script\.py:3", shown)
    kinds = {json.loads(line)["event"] for line in logs("--remarks", "--json").stdout.splitlines()}
    assert kinds == {"remark"}


def test_a_kernel_is_found_by_a_line_that_it_comes_from(logs: Command) -> None:
    done = logs("query", "--event", "kernel", "--line", "script.py:3", "--json")
    assert json.loads(done.stdout)["data"]["name"].startswith("cpp_red_fused")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Create runs whose processes have ended; their names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder, "is_alive", lambda pid: False)

    def make(command: str, *, healthy: bool = True) -> str:
        folder = run_folder.create(command)
        run_folder.finish(folder, healthy=healthy)
        return folder.name

    return make


def left() -> list[str]:
    return sorted(p.name.rpartition("-")[2] for p in Path(".tcdebug").glob("2*"))


def test_runs_are_removed_by_name(inside: Command, ended: Callable[..., str]) -> None:
    name = ended("one", healthy=False)
    ended("two")
    done = inside("logs", "rm", name)
    assert (done.status, left()) == (0, ["two"])
    assert "removed 1 run" in done.stderr


def test_healthy_runs_are_removed_together_and_the_others_stay(
    inside: Command, ended: Callable[..., str]
) -> None:
    for command in ("one", "two"):
        ended(command)
    ended("found", healthy=False)
    assert inside("logs", "rm", "--healthy").status == 0
    assert left() == ["found"]
    assert inside("logs", "rm", "--older-than", "1").status == 0
    assert left() == ["found"]


@pytest.mark.parametrize("names", [[], ["nonsense"], ["2"]], ids=["none", "unknown", "ambiguous"])
def test_an_ambiguous_name_removes_no_run(
    inside: Command, ended: Callable[..., str], names: list[str]
) -> None:
    ended("one")
    ended("two")
    assert inside("logs", "rm", *names).status == 2
    assert left() == ["one", "two"]


def test_a_run_in_progress_is_not_removed(
    inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = run_folder.create("one").name
    done = inside("logs", "rm", name)
    assert (done.status, left()) == (2, ["one"])
    assert "is still in progress" in done.stderr


def test_a_healthy_run_can_be_pruned_and_says_which_it_replaces(
    tcdebug: Command, script: Callable[[str], str], tmp_path: Path
) -> None:
    failing = script("raise SystemExit(3)")
    assert tcdebug("run", failing).status == 3
    script("")
    for _ in range(2):
        done = tcdebug("run", failing, TCDEBUG_KEEP_RUNS="1")
        assert done.status == 0
    assert "tcdebug: removed 2" in done.stderr
    assert "only the 1 newest healthy runs are kept (TCDEBUG_KEEP_RUNS=N keeps N)" in done.stderr
    assert len(list((tmp_path / ".tcdebug").glob("2*-run*"))) == 2


def test_a_bad_variable_is_a_usage_error(tcdebug: Command, script: Callable[[str], str]) -> None:
    done = tcdebug("run", script(""), TCDEBUG_KEEP_RUNS="many")
    assert done.status == 2
    assert "error TCD105: TCDEBUG_KEEP_RUNS must be a number of runs" in done.stderr
