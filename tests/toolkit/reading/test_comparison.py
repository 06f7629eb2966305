"""The differences between handwritten runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written import line, stage

from tcdebug.commands import diff
from tcdebug.reading.comparison import Change, compare
from tcdebug.reading.graphs import meaning
from tcdebug.reading.run_dir import Run

Make = Callable[..., Run]

ENVIRONMENT = {"tcdebug": "1", "torch": "2.13", "python": "3.11", "platform": "x", "threads": 2}
GRAPH = {"compile_id": "0/0", "direction": "forward"}


def environment(**variables: str) -> dict[str, Any]:
    """The event with the versions."""
    return line("env.snapshot", 0, {**ENVIRONMENT, "variables": variables})


def decision(subject: str, *, allowed: bool) -> dict[str, Any]:
    """A decision of the gate."""
    data = {"subject": subject, "ordinal": 0, "allowed": allowed}
    return line("decision", 1, data, unit="fuse.vertical", **GRAPH)


def wrote(run: Run, name: str, text: str, stage_name: str) -> dict[str, Any]:
    """The end of a stage, with its text."""
    (run.path / name).write_text(text)
    return {**stage(stage_name, 1, 0.1, **GRAPH), "data": {"seconds": 0.1, "artifact": name}}


def test_equal_runs_differ_in_nothing_but_times(make: Make) -> None:
    a = make(environment(), decision("a+b", allowed=True), stage("lower", 1, 0.5), name="a")
    b = make(environment(), decision("a+b", allowed=True), stage("lower", 2, 1.5), name="b")
    found = compare(a, b)
    assert not found.differs
    assert found.stages == [Change("lower", "0.500 s", "1.500 s")]


def test_differences_of_variables_settings_and_decisions_are_reported(make: Make) -> None:
    setting = "torch._dynamo.config.cache_size_limit = 2"
    a = make(environment(TORCH_A="1"), decision("a+b", allowed=True), name="a")
    b = make(
        environment(), line("config.snapshot", 2, {"changed": [setting]}),
        decision("a+b", allowed=False), name="b",
    )  # fmt: skip
    found = compare(a, b)
    assert found.environment == [
        Change("$TORCH_A", "1", ""),
        Change("torch._dynamo.config.cache_size_limit", "", "2"),
    ]
    assert found.decisions == [Change("fuse.vertical a+b (0/0 forward)", "yes", "no")]
    assert found.differs


def test_graphs_diverge_at_the_first_stage_with_a_different_meaning(make: Make) -> None:
    a, b = make(name="a"), make(name="b")
    lines_a = [
        wrote(a, "lower-1.py", "x = 1  # /tmp/a.py", "lower"),
        wrote(a, "inline-1.py", "x = 2", "inline"),
    ]
    lines_b = [wrote(b, "lower-2.py", "x = 1  # /tmp/b.py", "lower")]  # inline changed nothing
    (graph,) = compare(rewritten(a, lines_a), rewritten(b, lines_b)).graphs
    assert graph.what == "0/0 forward"
    assert graph.after == "differs from inline"


def rewritten(run: Run, lines: list[dict[str, Any]]) -> Run:
    """The run with these events."""
    (run.path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return run


def test_a_graph_that_one_run_lacks_is_reported(make: Make) -> None:
    a, b = make(name="a"), make(name="b")
    a = rewritten(a, [wrote(a, "l.py", "x", "lower")])
    assert compare(a, b).graphs == [Change("0/0 forward", "present", "")]
    assert compare(b, a).graphs == [Change("0/0 forward", "", "present")]


def test_differences_in_comments_paths_and_addresses_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("f(0x7f1)  # a\n\nload('/tmp/x/a.py')\n")
    (tmp_path / "b").write_text("f(0x7f2)\nload('/home/b.py')\n")
    assert meaning(tmp_path / "a") == meaning(tmp_path / "b")


def test_the_exit_status_says_whether_more_than_times_differs(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = make(environment(), name="a"), make(environment(TORCH_A="1"), name="b")
    assert diff.run(run_a=str(a.path), run_b=str(a.path), as_json=False) == 0
    assert "nothing differs" in capsys.readouterr().out
    assert diff.run(run_a=str(a.path), run_b=str(b.path), as_json=False) == 1
    assert "$TORCH_A: - -> 1" in capsys.readouterr().out
    assert diff.run(run_a=str(a.path), run_b="no such run", as_json=False) == 2
