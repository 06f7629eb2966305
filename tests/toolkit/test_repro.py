"""tcdebug repro, tcdebug repro issue and tcdebug.save_repro: repros on demand."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_scripts import WRONG_SIN
from torch import fx

from tcdebug.compiler.events import run_folder
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.repro import Repro, write

Command = Callable[..., Any]
Script = Callable[[str], str]

HEALTHY = """
import sys
def two(x):
    y = x.sin() * 2
    print("between", sys.argv[1:])
    return y.cos()
f = torch.compile(two, backend="aot_eager")
f(torch.ones(3, requires_grad=True)).sum().backward()
"""


@pytest.mark.slow
def test_every_graph_of_a_script_becomes_a_script_that_passes(
    cold: Command, script: Script, tmp_path: Path
) -> None:
    done = cold("-m", "tcdebug", "repro", "-o", "out", script(HEALTHY), "--epochs", "3")
    assert (done.status, done.stdout) == (
        0,
        "between ['--epochs', '3']\nout/graph_0.py\nout/graph_1.py\n",
    )
    again = cold("out/graph_1.py")
    assert (again.status, again.last_line) == (0, "it does not fail")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["graph_0.py", "graph_1.py"]


@pytest.mark.slow
def test_one_graph_as_a_test_runs_where_nothing_else_is(
    tcdebug: Command, python: Command, script: Script, tmp_path: Path
) -> None:
    done = tcdebug("repro", "--as-test", "--graph", "1", "-o", "tests", script(HEALTHY))
    assert (done.status, done.last_line) == (0, "tests/test_graph_1.py")
    assert [p.name for p in (tmp_path / "tests").iterdir()] == ["test_graph_1.py"]
    (tmp_path / "script.py").unlink()
    result = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert result.status == 0, result.stdout
    assert "1 passed" in result.stdout


WRONG = (
    WRONG_SIN
    + """f = torch.compile(lambda x: torch.sin(x).sum(), backend="tcdebug")
f(torch.ones(2, 4))
"""
)


@pytest.mark.slow
def test_a_failing_graph_is_written_and_named_too(tcdebug: Command, script: Script) -> None:
    """It needs the script's patch, so it contains the script; its test fails."""
    text = WRONG.replace('backend="tcdebug"', "backend=wrong").replace(
        "f = ", "def wrong(module, inputs):\n    return lambda x: (x.sum(),)\nf = "
    )
    done = tcdebug("repro", "-o", "out", script(text))
    assert (done.status, done.stdout) == (1, "out/graph_0.py\n")
    assert "graph_0.py does not pass: " in done.stderr
    assert "out/graph_0.py" in done.stderr


@pytest.mark.slow
def test_the_repro_of_a_run_becomes_a_test_that_fails_and_a_report(
    tcdebug: Command, python: Command, script: Script, tmp_path: Path
) -> None:
    assert tcdebug("run", "--check", script(WRONG)).status == 1
    (tmp_path / "tests").mkdir()
    done = tcdebug("repro", "--as-test", "-o", "tests", "latest")
    assert (done.status, done.stdout) == (0, "tests/test_repro.py\n")
    result = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert result.status == 1
    assert "forward | wrong value" in result.stdout
    report = tcdebug("repro", "issue")
    assert report.status == 0
    assert report.stdout.startswith("# torch.compile: wrong in forward: output 0: ")
    assert "| everything on | fails: wrong |" in report.stdout
    assert str(tmp_path) not in report.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["nothing.py"], 2, "no script 'nothing.py'"),
        (["issue"], 2, "none of the 0 runs in .tcdebug found a failure"),
        (["issue", "a", "b"], 2, "unexpected extra argument"),
        (["--graph", "-1", "script.py"], 2, "is not in the range"),
        (["-o", "script.py/out", "script.py"], 2, "cannot create script.py/out"),
    ],
)
def test_bad_input_gets_a_message_and_no_traceback(
    inside: Command, script: Script, arguments: list[str], status: int, message: str
) -> None:
    script("")
    done = inside("repro", *arguments)
    assert done.status == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "flags", "status", "message"),
    [
        ("", [], 4, "torch.compile captured no graphs"),
        (
            HEALTHY, ["--graph", "7"], 4,
            "no repro of graph 7 (counted from 0) of script.py was written: "
            "torch.compile captured 2 graphs",
        ),
        ("raise ValueError('planted')", [], 5, "ValueError: planted"),
    ],
    ids=["no graph", "no such graph", "raises"],
)  # fmt: skip
def test_a_script_without_the_graph_is_distinguished_from_one_that_fails(
    tcdebug: Command, script: Script, text: str, flags: list[str], status: int, message: str
) -> None:
    done = tcdebug("repro", *flags, script(text))
    assert done.status == status
    assert message in done.stderr


def test_the_repro_of_the_newest_run_that_has_one_is_converted_with_its_data(
    inside: Command, tmp_path: Path
) -> None:
    for name in ("20260101-000000-bisect", "20260102-000000-repro"):
        (tmp_path / ".tcdebug" / name).mkdir(parents=True)
        run_folder.write_info(tmp_path / ".tcdebug" / name, "bisect")
    folder = tmp_path / ".tcdebug" / "20260101-000000-bisect"
    graph = fx.symbolic_trace(lambda x: (x.tanh(),))
    case = Case(graph, (CaseInput("x", torch.randn(99)),))
    failure = Outcome(Kind.WRONG, "forward", "forward | wrong value")
    write(case, Repro(failure, {"backend": "eager"}), folder / "repro.py")
    done = inside("repro", "--standalone", "latest")
    assert done.stdout == ".tcdebug/20260101-000000-bisect/standalone_repro.py\n"
    done = inside("repro", "--standalone", "-o", "out", str(folder / "repro.py"))
    assert (done.status, done.stdout) == (0, "out/standalone_repro.py\n")
    assert "\nclass GraphJudge:\n" in (tmp_path / "out" / "standalone_repro.py").read_text()
    assert (tmp_path / "out" / "standalone_repro.safetensors").is_file()
    done = inside("repro", "--standalone", "--backend", "eager", str(folder / "repro.py"))
    assert done.status == 2 and "it takes only --as-test, --standalone" in done.stderr


# -- the report -----------------------------------------------------------------------------


GRAPH = """class Graph(torch.nn.Module):
    def forward(self, a, b):
        return (a + b,)


def inputs():
    return [torch.ones(1), torch.ones(1)]"""


@pytest.fixture
def bisected(tmp_path: Path) -> Path:
    """The run folder of a bisection, as its session leaves it."""
    folder = tmp_path / ".tcdebug" / "20260101-000000-bisect"
    folder.mkdir(parents=True)
    info = {
        "run_id": folder.name, "command": "bisect", "argv": [], "cwd": str(tmp_path),
        "pid": os.getpid(), "started": 1.0, "monotonic_ns": 1,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(info))
    repro = folder / "repro.py"
    repro.write_text(
        '"""A hang\n\nbackend   {\'backend\': \'inductor\'}\n"""\n'
        f'SCRIPT = "{tmp_path}/model.py"\n\n\n{GRAPH}\n\nprint("judge")\n'
    )
    (folder / "repro.log").write_text(f"{Path.home()}/secret {sys.prefix}/lib\nfound hang\n")
    report = {
        "status": "confirmed",
        "failure": {"kind": "hang", "signature": "compile | hang", "message": "no end"},
        "culprits": [{"unit": "passes.loop", "subject": "a+b", "site": "0123456789", "ordinal": 3}],
        "faults": [
            {
                "failure": {"kind": "hang", "signature": "compile | hang", "message": "no end"},
                "confirmed": True,
                "culprits": [
                    {"unit": "passes.loop", "subject": "a+b", "site": "0123456789", "ordinal": 3}
                ],
                "stages": {
                    "stage": "passes.loop (forward)",
                    "last_equal": "aot (forward)",
                    "lines": ["-    add = a + b", "+    add = a + a"],
                },
            }
        ],
        "ladder": [{"backend": "eager", "outcome": "ok"}],
        "confirmed": True,
        "repro": str(repro),
        "nodes_before": 40,
        "nodes_after": 2,
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_a_report_has_the_sections_of_the_form_and_reveals_nothing_about_the_machine(
    inside: Command, bisected: Path, tmp_path: Path
) -> None:
    done = inside("repro", "issue", "-o", "report.md", bisected.name)
    assert (done.status, done.stdout) == (0, "")
    text = (tmp_path / "report.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# torch.compile: hang in forward: no end",
        "### 🐛 Describe the bug",
        "### Error logs",
        "### Versions",
    ]
    assert "The graph was minimised from 40 to 2 nodes." in text
    assert (
        "- expected: termination, as in eager\n- actual: no end\n"
        "- signature: `passes.loop | compile | hang`\n" in text
    )
    search = "https://github.com/pytorch/pytorch/issues?q=is%3Aissue+torch.compile+hang"
    assert f"\n<!-- Search for duplicates before you submit: {search} -->\n" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows == [
        "| ablation | |",
        "| everything on | fails: hang |",
        "| off: passes.loop | passes |",
        "| with the backend eager | passes |",
    ]
    diff = "differs with the culprit on is `passes.loop (forward)`:\n\n```diff\n-    add = a + b\n"
    assert diff in text
    assert f"The graph and its inputs:\n\n```python\n{GRAPH}\n```\n" in text
    _, _, folded = text.partition("<details><summary>repro.py</summary>\n")
    assert 'SCRIPT = "./model.py"' in folded.partition("</details>")[0]
    assert "PyTorch version: 2." in text
    for private in (str(tmp_path), str(Path.home()), sys.prefix):
        assert f"{private}/" not in text


def test_a_report_has_the_short_form_where_there_is_one(inside: Command, bisected: Path) -> None:
    path = bisected / "report.json"
    report = json.loads(path.read_text())
    report["faults"][0]["short"] = str(bisected / "short.py")
    path.write_text(json.dumps(report))
    assert "SCRIPT =" in inside("repro", "issue").stdout  # the file does not exist
    (bisected / "short.py").write_text("import torch\nf = 1\n")
    text = inside("repro", "issue").stdout
    assert "```python\nimport torch\nf = 1\n```\n" in text
    assert "SCRIPT =" not in text


def test_a_report_has_the_table_of_versions_where_there_is_one(
    inside: Command, bisected: Path
) -> None:
    passes, fails = {"version": "2.12", "torch": "2.12.1"}, {"version": "2.13", "torch": "2.13.0"}
    trials = [{**passes, "standing": "passes"}, {**fails, "standing": "fails in the same way"}]
    history = {"script": "repro.py", "verdict": "fails since 2.13 (2.12 passes)", "since": ["2.13"]}
    command = "tcdebug since repro.py --torch 2.11..2.15"
    add = f"<!-- `{command}` adds a table of versions that fail to this report -->"
    assert add in inside("repro", "issue").stdout
    (bisected / "since.json").write_text(json.dumps({**history, "fixed": [], "trials": trials}))
    table = (
        "| torch | result |\n|---|---|\n| 2.12.1 | passes |\n| 2.13.0 | fails in the same way |\n"
    )
    verdict = "With other versions of torch: **fails since 2.13 (2.12 passes)**."
    text = inside("repro", "issue").stdout
    assert f"{verdict}\n\n{table}" in text and add not in text


def test_a_run_that_ended_in_a_graph_has_a_report(inside: Command, bisected: Path) -> None:
    (bisected / "report.json").unlink()
    graph = bisected / "graphs" / "0"
    graph.mkdir(parents=True)
    (bisected / "repro.py").rename(graph / "repro.py")
    (graph / "running").write_text("4194303 compile\n")  # no process has this number
    done = inside("repro", "issue")
    assert done.status == 0
    title = "# torch.compile: crash in forward: the process ended in this graph\n"
    assert done.stdout.startswith(title)


def test_the_first_of_several_faults_is_reported(inside: Command, bisected: Path) -> None:
    report = json.loads((bisected / "report.json").read_text())
    fault = {
        "confirmed": True, "failure": report["failure"], "culprits": report["culprits"],
        "requires": ["fuse"], "only_fails": "python repro.py --only=passes.loop --only=fuse",
    }  # fmt: skip
    other = {**report["culprits"][0], "unit": "lower.aten.sin"}
    report |= {"faults": [fault], "culprits": [*report["culprits"], other]}
    (bisected / "report.json").write_text(json.dumps(report))
    done = inside("repro", "issue")
    assert "It passes with `passes.loop` off at `a+b`." in done.stdout
    assert "| everything off except `passes.loop`, `fuse` | fails: hang |" in done.stdout
    assert "lower.aten.sin" not in done.stdout


def test_a_run_without_a_failure_has_no_report(inside: Command, bisected: Path) -> None:
    (bisected / "report.json").write_text('{"status": "no_failure"}')
    done = inside("repro", "issue", bisected.name)
    assert done.status == 2
    assert "found no failure with a repro: no_failure" in done.stderr


# -- save_repro -----------------------------------------------------------------------------


def test_a_call_is_saved_and_the_process_is_as_before(
    python: Command, script: Script, tmp_path: Path
) -> None:
    text = """
import tcdebug
(torch.randn(300, 300) @ torch.randn(300, 300)).sum()  # a pool of threads, if there may be one
norm = torch.nn.BatchNorm1d(4)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), norm, torch.nn.Dropout())
compiled = torch.compile(model, backend="aot_eager")
x = torch.randn(5, 4)
compiled(x)
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
mean, state = norm.running_mean.clone(), torch.get_rng_state()
paths = tcdebug.save_repro(compiled, x, folder="saved")
assert tcdebug.save_repro(torch.tanh, x, folder="plain", backend="eager")
assert torch.equal(mean, norm.running_mean) and torch.equal(state, torch.get_rng_state())
compiled(x)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
print(*paths)
"""
    done = python(script(text), OMP_NUM_THREADS="2")
    assert done.stdout == "saved/graph_0.py\n", done.stderr
    assert "CALL = {'backend': 'aot_eager'}" in (tmp_path / "saved/graph_0.py").read_text()
    assert "CALL = {'backend': 'eager'}" in (tmp_path / "plain/graph_0.py").read_text()
    assert python("saved/graph_0.py").status == 0


def test_a_process_that_cannot_be_forked_makes_the_call_itself(
    python: Command, script: Script, tmp_path: Path
) -> None:
    text = """
from pathlib import Path
from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.capture import Capture
from tcdebug.api.saving import _saved_here
norm = torch.nn.BatchNorm1d(4)
compiled = torch.compile(norm, backend="aot_eager")
x = torch.randn(5, 4)
compiled(x)
mean, state = norm.running_mean.clone(), torch.get_rng_state()
Path("saved").mkdir()
saved = _saved_here(Capture(Path("saved"), EventLog(None)), lambda: compiled(x))
assert torch.equal(state, torch.get_rng_state()) and not torch.equal(mean, norm.running_mean)
print(saved.paths, saved.problems, len(saved.notes), saved.notes[0])
assert torch.compiler.is_compiling() is False and compiled(x).shape == (5, 4)
"""
    done = python(script(text))
    assert done.stdout == (
        "['saved/graph_0.py'] [] 1 the call was made in this process, because it cannot be forked: "
        "its side effects remain, and compiled code will be compiled again\n"
    ), done.stderr
    assert "it does not fail" in (tmp_path / "saved/graph_0.log").read_text()


def test_a_value_that_cannot_be_saved_is_named(python: Command, script: Script) -> None:
    text = """
import os, tcdebug
for function in (lambda x: x.nonsense(), lambda x: print("none"), lambda x: os.abort()):
    try:
        tcdebug.save_repro(function, torch.ones(3), folder="saved")
    except tcdebug.NotSaved as problem:
        print(problem)
"""
    done = python(script(text))
    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "the call raised AttributeError: 'Tensor' object has no attribute 'nonsense'"
    )
    assert lines[1] == "the call compiled nothing"
    assert lines[2] == ("the call ended its process; its output is in saved/capture.log")
