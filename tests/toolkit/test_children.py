"""A failing compile in a child process of the script is found like one in the script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
Script = Callable[[str], str]

SPAWNS = """
import torch.multiprocessing as mp

def work(rank):
    from torch._inductor import config
    config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    torch.compile(lambda x: torch.sin(x) * 2)(torch.ones(4))
    torch.compile(lambda x: torch.relu(x) + 1)(torch.randn(8, 8))

if __name__ == "__main__":
    mp.spawn(work, (), 2)
"""

PATCHES_ITSELF = """
import torch
import torch.multiprocessing as mp

def work(rank):
    from torch._inductor import lowering
    right = lowering.lowerings[torch.ops.aten.exp.default]
    lowering.lowerings[torch.ops.aten.exp.default] = lambda x: lowering.add(right(x), 1.0)
    assert torch.compile(lambda x: torch.exp(x) * 2)(torch.zeros(4))[0].item() == 2.0

if __name__ == "__main__":
    mp.spawn(work, (), 1)
"""

STARTS = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:], "worker.py", "2"], check=True)
"""

WORKER = """
import sys
import torch
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
REGISTRY.lowerings[torch.ops.aten.sin.default] = lambda site, x: right(site, right(site, x))
scale = int(sys.argv[1])
torch.compile(lambda x: torch.sin(x) * scale, backend="tcdebug")(torch.ones(3))
"""


@pytest.mark.slow
def test_a_multiprocessing_worker_is_bisected(
    tcdebug: Command, python: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", "--no-minify", script(SPAWNS))
    assert done.status == 0, done.stderr
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.relu.default"]
    assert done.json["graph"] == 1
    assert done.json["notes"][0].startswith(
        "the graph belongs to a process that the script started: SpawnProcess-"
    )
    assert python(done.json["repro"]).status == 1
    assert python(done.json["repro"], "--off=lower.aten.relu.default").status == 0


@pytest.mark.slow
def test_a_worker_that_sets_up_its_graph_itself_is_confirmed_by_the_whole_script(
    cold: Command, python: Command, script: Script
) -> None:
    given = ("--json", "--script-seconds", "0", script(PATCHES_ITSELF))
    done = cold("-m", "tcdebug", "bisect", *given)
    report = done.json
    assert (done.status, report["status"]) == (0, "confirmed"), done.stderr
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.exp.default"]
    assert report["faults"][0]["fails"] == "python repro.py"
    assert python(report["repro"], "--off=lower.aten.exp.default").status == 0


@pytest.mark.slow
def test_a_child_process_started_by_subprocess_is_bisected(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    done = tcdebug("bisect", "--json", "--no-minify", script(STARTS))
    assert done.status == 0, done.stderr
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]
    note = "the graph belongs to a process that the script started: worker.py"
    passes = "the script passes with lower.aten.sin.default off"
    assert done.json["notes"] == [note, passes]


@pytest.mark.slow
def test_a_child_process_that_did_not_load_tcdebug_is_named(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    done = tcdebug("bisect", "--json", script(STARTS), "-I")
    assert done.status == 4
    unwatched = "a process that uses torch was not watched: "
    (note,) = (note for note in done.json["notes"] if note.startswith(unwatched))
    assert note.endswith("-I worker.py 2")


@pytest.mark.slow
def test_a_failure_in_a_child_process_leaves_a_repro(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    done = tcdebug("run", "--check", script(STARTS))
    assert done.status == 1
    (repro,) = tmp_path.glob(".tcdebug/*-run/graphs/0-*/repro.py")
    assert str(repro.relative_to(tmp_path)) in done.stderr
