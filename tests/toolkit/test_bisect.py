"""tcdebug bisect on typical scripts, with bugs that the scripts plant themselves."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from planted_scripts import WRONG_SIN

Command = Callable[..., Any]
Script = Callable[[str], str]

NO_COS = """
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
def broken(site, *args):
    raise ValueError("planted")
REGISTRY.lowerings[torch.ops.aten.cos.default] = broken
"""


@pytest.mark.parametrize(
    ("once", "raised"),
    [
        ("os.mkdir('results')", ": FileExistsError: [Errno 17] File exists: 'results'"),
        ("sys.exit(0) if os.path.exists('done') else open('done', 'w').close()", ""),
    ],
)
def test_a_repro_of_a_script_that_can_run_only_once_says_why_it_does_not_fail(
    once: str, raised: str, tcdebug: Command, script: Script
) -> None:
    name = script(
        f"{WRONG_SIN}\nimport os, sys\n{once}\n"
        "print(torch.compile(torch.sin, backend='tcdebug')(torch.ones(3)).shape)\n"
    )
    report = tcdebug("bisect", "--json", name).json
    assert report["confirmed"] is False
    assert [note for note in report["notes"] if "repro script" in note] == [
        "the repro script does not fail by itself: the script, which it runs first, "
        f"does not reach the graph again{raised}"
    ]


def test_a_wrong_lowering_in_the_second_graph_is_found(
    tcdebug: Command, python: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("2")
    name = script(
        WRONG_SIN
        + """
import sys
assert sys.argv[1:] == ["--flag", "3"], sys.argv
factor = float(open("data.txt").read())  # from the working folder
open("runs.txt", "a").write("run ")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        x = self.linear(x).relu()
        print("a graph break")
        x = torch.cat([x, x * factor]).cumsum(0)
        return torch.sin(x + 1) / 2 + x

model = torch.compile(Model(), backend="tcdebug")
for rows in (3, 5):
    model(torch.randn(rows, 4)).sum().backward()
"""
    )
    done = tcdebug("bisect", "--json", name, "--flag", "3")
    report = done.json
    assert done.status == 0, done.stderr
    assert report["status"] == "confirmed"
    assert report["confirmed"] is True
    assert report["failure"]["kind"] == "wrong"
    assert report["graph"] == 1
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sin.default"]
    assert report["culprits"][0]["subject"] == "sin"
    assert report["nodes_after"] == 1
    stages = report["faults"][0]["stages"]
    assert (stages["stage"], stages["last_equal"]) == ("lower (inference)", "passes (inference)")
    assert "+    return sin(t1)" in Path(stages["path"]).read_text().splitlines()
    # the search, the repro, which needs the script's planted bug, and the script without it
    assert (tmp_path / "runs.txt").read_text() == "run run run run run "
    assert python(report["repro"]).status == 1
    assert python(report["repro"], "--off=lower.aten.sin.default").status == 0


def cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_an_exception_in_backward_is_found(
    script: Script, tmp_path: Path, environment: Mapping[str, str], warm_server: Any
) -> None:
    name = script(
        NO_COS
        + """
f = torch.compile(lambda x: torch.sin(x * 2).sum(), backend="tcdebug")
f(torch.ones(2, 4, requires_grad=True)).backward()
"""
    )
    before = cpu_seconds_of_children()
    process = warm_server.popen(
        [warm_server.path, "-m", "tcdebug", "bisect", "--json", "--no-minify", name],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    report = json.loads(process.communicate(timeout=280)[0])
    used = cpu_seconds_of_children() - before
    assert report["status"] == "confirmed"
    assert report["failure"]["kind"] == "exception"
    assert report["failure"]["direction"] == "backward"
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.cos.default"]
    assert report["nodes_after"] == report["nodes_before"] == 3
    assert report["faults"][0]["stages"]["ended_before"] == "lower (backward)"
    logs = Path(report["repro"]).parent.glob("events*.jsonl")
    verified = [line for log in logs for line in log.open() if '"repro.verify"' in line]
    assert len(verified) == 1, "a repro without the script, whose code raises, is not tried"
    assert 0.9 * used < report["cpu_seconds"] <= used, "the cost is that of the whole command"


def test_a_failure_that_the_script_swallows_is_found(tcdebug: Command, script: Script) -> None:
    name = script(
        NO_COS
        + """
f = torch.compile(lambda x: torch.cos(x), backend="tcdebug")
try:
    f(torch.ones(3))
except Exception:
    pass
"""
    )
    report = tcdebug("bisect", "--json", "--no-minify", name).json
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.cos.default"]
    assert report["nodes_after"] == report["nodes_before"] == 1


@pytest.mark.slow
def test_a_script_that_fails_only_as_a_whole_is_bisected_as_a_whole(
    tcdebug: Command, script: Script
) -> None:
    name = script(
        """
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right, uses = LOWERINGS[torch.ops.aten.sin.default], []
def second_use_fails(site, x):
    uses.append(x)
    if len(uses) == 2:
        raise RuntimeError("a second use")
    return right(site, x)
REGISTRY.lowerings[torch.ops.aten.sin.default] = second_use_fails
for factor in (2, 3):
    torch.compile(lambda x, factor=factor: x.sin() * factor, backend="tcdebug")(torch.ones(3))
"""
    )
    done = tcdebug("bisect", "--json", "--script-seconds", "0", name)
    assert done.status == 0, done.stderr
    assert done.json["graph"] is None
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]
    assert "none of its graphs fails alone" in done.json["notes"][-1]


@pytest.mark.slow
def test_a_graph_that_passes_when_judged_and_fails_later_is_bisected_with_its_script(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    compiled = str(tmp_path / "compiled.txt")
    name = script(
        f"""
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY
right = LOWERINGS[torch.ops.aten.sin.default]
def fails_later(site, x):
    open({compiled!r}, "a").write("x")
    if len(open({compiled!r}).read()) > 2:
        raise RuntimeError("from its third compile on")
    return right(site, x)
REGISTRY.lowerings[torch.ops.aten.sin.default] = fails_later
torch.compile(lambda x: (x.sin() * 2).sum(), backend="tcdebug")(torch.ones(3))
"""
    )
    done = tcdebug("bisect", "--json", name)
    assert done.status == 0, done.stderr
    assert done.json["graph"] is None
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch.ones(2) @ torch.ones(3)", "RuntimeError: inconsistent tensor size"),
        ("raise SystemExit('no data')", "no data"),
        ("import os; os.abort()", ""),
    ],
)
def test_a_script_that_fails_in_eager_is_status_5(
    tcdebug: Command, script: Script, text: str, message: str
) -> None:
    done = tcdebug("bisect", "--json", script(text))
    assert done.status == 5
    assert done.json["status"] == "fails_in_eager"
    assert message in done.json["failure"]["message"]


@pytest.mark.slow
def test_the_layer_of_a_fault_in_a_custom_backend_is_the_backend(
    tcdebug: Command, python: Command, script: Script
) -> None:
    name = script(
        """
def mine(module, inputs):
    for node in module.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sigmoid
    module.recompile()
    return module.forward

linear = torch.nn.Linear(8, 8)
def model(x):
    x = torch.tanh(linear(x).relu() + x.mean(0))
    return linear(x).relu() + x.mean(0)
torch.compile(model, backend=mine)(torch.randn(4, 8)).sum().backward()
"""
    )
    done = tcdebug("bisect", "--json", name)
    assert done.status == 0
    assert done.json["nodes_before"] == 9
    assert done.json["nodes_after"] == 1
    assert done.json["layer"] == "layer.backend"
    assert done.json["ladder"] == [{"backend": "aot_eager_decomp_partition", "outcome": "ok"}]
    assert [(c["unit"], c["subject"]) for c in done.json["culprits"]] == [("layer.backend", "mine")]
    assert done.json["faults"][0]["stages"] is None
    assert python(done.json["repro"], "--off=layer.backend").status == 0


@pytest.mark.slow
def test_a_custom_operator_that_is_registered_wrongly_is_the_culprit(
    tcdebug: Command, script: Script
) -> None:
    name = script("""
@torch.library.custom_op("planted::first_half", mutates_args=())
def first_half(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2].clone()

@first_half.register_fake
def _(x):
    return torch.empty_like(x)

torch.compile(lambda x: first_half(x) + 1, backend="tcdebug")(torch.randn(8))
""")
    done = tcdebug("bisect", "--json", "--no-minify", name)
    (fault,) = done.json["faults"]
    assert done.json["layer"] == "layer.script"
    assert (done.json["culprits"], fault["culprits"], fault["alternatives"]) == ([], [], [])
    assert fault["misregistered"] == [
        "the custom operator planted.first_half.default is registered wrongly, says "
        "test_faketensor of torch.library.opcheck: When comparing the output of "
        "planted.first_half.default on FakeTensor and concrete Tensors, found mismatched tensor "
        "metadata: Shapes torch.Size([4]) and torch.Size([8]) are not equal!"
    ]
    assert done.json["notes"] == [
        "the fake kernel of planted.first_half.default, which compilers trust, gives size [8] "
        "instead of [4]"
    ]


def test_a_used_up_budget_is_status_6_and_keeps_the_best(tcdebug: Command, script: Script) -> None:
    name = script(
        WRONG_SIN
        + """
f = torch.compile(lambda x: (x.exp() + 1).sin().sum() * 2, backend="tcdebug")
f(torch.ones(3))
"""
    )
    done = tcdebug("bisect", "--json", "--reruns", "6", name)
    assert done.status == 6
    assert done.json["status"] == "budget"
    assert done.json["reruns"] == 6
    assert Path(done.json["repro"]).exists()


def test_ctrl_c_keeps_what_is_known_and_the_same_command_continues(
    tcdebug: Command,
    script: Script,
    tmp_path: Path,
    environment: Mapping[str, str],
    warm_server: Any,
) -> None:
    name = script(
        WRONG_SIN
        + """
def model(x):
    for _ in range(2):
        x = (x.exp() + 1).log().sin()
    return x
torch.compile(model, backend="tcdebug")(torch.ones(3))
"""
    )
    process = warm_server.popen(
        [warm_server.path, "-m", "tcdebug", "bisect", "--json", name],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and _answers(tmp_path) < 4:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output)["status"] == "interrupted"
    known = _answers(tmp_path)
    done = tcdebug("bisect", "--json", name)
    assert done.json["status"] == "confirmed"
    assert [c["unit"] for c in done.json["culprits"]] == ["lower.aten.sin.default"]
    assert "continuing 2" in done.stderr
    first, second = sorted((tmp_path / ".tcdebug").glob("*-bisect"))
    cached = [
        e for e in map(json.loads, (second / f"events-{_search_pid(second)}.jsonl").open())
        if e["event"] == "candidate" and e["data"]["cached"]
    ]  # fmt: skip
    assert len(cached) >= known
    assert first.name < second.name


def _answers(folder: Path) -> int:
    """How many outcomes a run has written down."""
    files = folder.glob(".tcdebug/*-bisect/answers.jsonl")
    return sum(len(p.read_bytes().splitlines()) for p in files)


def _search_pid(run: Path) -> int:
    events = map(json.loads, (run / "events.jsonl").open())
    return next(
        int(e["data"]["worker_pid"])
        for e in events
        if e["event"] == "worker.start" and e["data"]["purpose"] == "search"
    )


@pytest.mark.slow
def test_a_repro_script_can_be_bisected(tcdebug: Command, script: Script) -> None:
    name = script(
        WRONG_SIN + 'torch.compile(lambda x: (x + 1).sin() * 2, backend="tcdebug")(torch.ones(3))'
    )
    first = tcdebug("minify", "--json", name)
    assert first.status == 0
    assert first.json["status"] == "minimized"
    assert first.json["culprits"] == []
    second = tcdebug("bisect", "--json", first.json["repro"])
    assert second.json["status"] == "confirmed"
    assert [c["unit"] for c in second.json["culprits"]] == ["lower.aten.sin.default"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["bisect", "missing.py"], "missing.py"),
        (["bisect", "--off", "nothing.like.this:x", "script.py"], "nothing.like.this"),
        (["bisect", "--backnd", "x", "script.py"], "--backend"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_usage_error_exits_with_2(
    inside: Command, script: Script, args: list[str], message: str
) -> None:
    script("")
    done = inside(*args)
    assert done.status == 2
    assert message in done.stderr
