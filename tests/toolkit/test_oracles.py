"""What counts as a failure: the options of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted_scripts import WRONG_SIN

from tcdebug.cli.main import cli
from tcdebug.minifier.cases.criteria import ORACLES

Command = Callable[..., Any]
Script = Callable[[str], str]

TWO_FAULTS = (
    WRONG_SIN
    + """def broken(site, *args):
    raise ValueError("planted")
REGISTRY.lowerings[torch.ops.aten.cos.default] = broken
torch.compile(lambda x: torch.sin(x) + 1, backend="tcdebug")(torch.ones(3))
torch.compile(lambda x: torch.cos(x) * 2 + 1, backend="tcdebug")(torch.ones(3))
"""
)

SLOW_SIN = """
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
def slow(site, x):
    for _ in range(60):
        x = right(site, x)
    return x
REGISTRY.lowerings[torch.ops.aten.sin.default] = slow
torch.set_num_threads(2)
torch.compile(lambda x: torch.sin(x), backend="tcdebug")(torch.randn(500, 1000))
"""


@pytest.mark.slow
def test_failures_that_do_not_match_are_kept_and_the_search_continues(
    tcdebug: Command, python: Command, script: Script, tmp_path: Path
) -> None:
    done = tcdebug(
        "bisect", "--json", "--no-minify", "--fail-regex", "Value.*planted", script(TWO_FAULTS)
    )
    assert done.json["failure"]["kind"] == "exception"
    assert done.json["graph"] == 1
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.cos.default"]
    (run,) = tmp_path.glob(".tcdebug/*-bisect")
    others = [
        e["data"]
        for path in run.glob("events-*.jsonl")
        for e in map(json.loads, path.open())
        if e["event"] == "failure.other"
    ]
    assert [(o["signature"], o["nodes"]) for o in others] == [("forward | wrong value", 2)]
    assert Path(others[0]["path"]) == run / "other" / "0" / "repro.py"
    assert "'what': 'forward | wrong value'" in (run / "other" / "0" / "repro.py").read_text()


@pytest.mark.slow
def test_the_crash_oracle_ignores_wrong_numbers_and_a_finished_search_is_not_resumed(
    tcdebug: Command, script: Script
) -> None:
    name = script(TWO_FAULTS.replace('raise ValueError("planted")', "return right(site, *args)"))
    for _ in range(2):
        done = tcdebug("bisect", "--json", "--oracle", "crash", name)
        assert done.status == 4
        assert done.json["status"] == "no_failure"
        assert "continuing 2" not in done.stderr


@pytest.mark.slow
def test_a_slowdown_is_bisected(tcdebug: Command, script: Script) -> None:
    done = tcdebug("bisect", "--json", "--oracle", "perf", "--no-minify", script(SLOW_SIN))
    assert done.json["failure"]["kind"] == "slow"
    assert done.json["failure"]["signature"] == "forward | slow"
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]
    assert any("timed in one thread" in note for note in done.json["notes"])
    (fault,) = done.json["faults"]
    assert "'OMP_NUM_THREADS': '1'" in Path(fault["repro"]).read_text()


SLOW_PASS = """
import torch

def backend(graph, inputs):
    for node in graph.graph.find_nodes(op="call_function", target=torch.tanh):
        copies = [node]
        for _ in range(60):
            with graph.graph.inserting_after(copies[-1]):
                copies.append(graph.graph.call_method("clone", (copies[-1],)))
        users = [user for user in node.users if user not in copies]
        node.replace_all_uses_with(copies[-1], delete_user_cb=users.__contains__)
    graph.recompile()
    return graph.forward

def step(x):
    return torch.tanh(x.cos() + 1).sigmoid() * 2

with torch.no_grad():
    torch.compile(step, backend=backend)(torch.randn(1024, 128))
"""


@pytest.mark.slow
def test_a_slow_graph_is_not_cut_down_until_its_repro_is_fast(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", "--oracle", "perf", script(SLOW_PASS))
    assert (done.json["status"], done.json["nodes_after"]) == ("confirmed", 1)
    assert [c["unit"] for c in done.json["culprits"]] == ["layer.backend"]


def test_a_command_judges(tcdebug: Command, script: Script, tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "import sys\nsource = open(sys.argv[1]).read()\nsys.exit('= torch.cos(' in source)\n"
    )
    name = script(TWO_FAULTS)
    done = tcdebug("minify", "--json", "--check", "python judge.py {}", name)
    assert (done.status, done.json["status"]) == (0, "minimized")
    assert done.json["failure"]["kind"] == "bad"
    assert done.json["graph"] == 1
    assert (done.json["nodes_before"], done.json["nodes_after"]) == (3, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--oracle", "magic"], "'default', 'crash', 'eager', 'fp64', 'layout', 'nan', 'perf'"),
        (["--fail-regex", "(unclosed"], "invalid regular expression"),
        (["--check", "no-such-command {}"], "no such command: 'no-such-command'"),
        (["--check", "python 'unclosed"], "No closing quotation"),
        (["--slower-than", "0.5"], "--slower-than"),
        (["--confidence", "1"], "--confidence"),
        (["-j", "0"], "--jobs"),
    ],
)
def test_bad_options_are_usage_errors(
    inside: Command, script: Script, args: list[str], message: str
) -> None:
    done = inside("bisect", *args, script(""))
    assert done.status == 2
    assert message in done.stderr


def test_bisect_and_minify_judge_alike() -> None:
    for name in ("bisect", "minify"):
        (oracle,) = [p for p in cli.commands[name].params if p.name == "oracle"]
        assert tuple(oracle.type.choices) == ORACLES  # type: ignore[attr-defined] # a Choice
