"""tcdebug run --profile, as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.commands.run import without_graphs
from tcdebug.display.profile import SHARED

Command = Callable[..., Any]
Script = Callable[[str], str]

ROWS, COLUMNS = 1024, 1024
MODEL = f"""
torch.set_num_threads(1)
def f(x, w):
    y = x @ w
    torch._dynamo.graph_break()
    z = y.relu()
    for _ in range(12):
        z = z.sin().exp().tanh().erf()
    return z
compiled = torch.compile(f, backend=BACKEND)
x, w = torch.ones({ROWS}, {COLUMNS}), torch.ones({COLUMNS}, {COLUMNS})
for _ in range(4):
    compiled(x[:, :8], w[:8])
print("said by the script")
"""
MATMUL, RELU, CHAIN = 5, 7, 9
BYTES = 2 * ROWS * COLUMNS * 4
"""A kernel reads and writes one float32 tensor."""


@pytest.mark.parametrize("backend", ["inductor", "tcdebug"])
def test_the_line_that_costs_most_comes_first_with_its_kernel_and_the_bytes_it_moves(
    tcdebug: Command, script: Script, tmp_path: Path, backend: str
) -> None:
    name = script(MODEL.replace("BACKEND", repr(backend)))
    done = tcdebug("run", "--profile", "--json", "--steps", "2", name)
    assert done.status == 0, done.stderr
    found = done.json
    assert (found["steps"], found["warm_up"]) == (2, 1)
    assert found["copy_speeds"]["cpu"] > 1e8
    first, path = found["lines"][0], tmp_path / name
    assert first["line"] == f"{path}:{CHAIN}"
    assert first["source"] == "z = z.sin().exp().tanh().erf()"
    kernel = found["kernels"][0]
    assert (kernel["kind"], kernel["calls"], kernel["graph"]) == ("generated", 2, "1/0 inference")
    assert kernel["lines"] == {f"{path}:{CHAIN}": 48, f"{path}:{RELU}": 1}
    assert kernel["moved"] == BYTES
    assert kernel["bandwidth"] == pytest.approx(BYTES / kernel["mean_seconds"])
    product = next(c for c in found["kernels"] if c["name"] == "aten::mm")
    assert (product["kind"], product["lines"]) == ("library", {f"{path}:{MATMUL}": 1})
    trace = json.loads(Path(tmp_path, found["trace"]).read_text())["traceEvents"]
    events = [e for e in trace if e.get("args", {}).get("kernel") == kernel["name"]]
    assert len(events) == 3  # with the call that warms up, which is not measured
    assert {e["args"]["graph"] for e in events} == {"1/0 inference"}
    assert set(events[0]["args"]["lines"]) == set(kernel["lines"])
    assert {"sin", "exp", "tanh", "erf"} <= {n.rstrip("_0123456789") for n in kernel["nodes"]}
    log = next(tmp_path.glob(".tcdebug/2*/script.log"))
    assert log.read_text().endswith("said by the script\n")  # torch may warn before


BACKWARD = """
torch.set_num_threads(1)
linear = torch.nn.Linear(64, 64)
@torch.compile
def step(x):
    return linear(x).exp()
optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
for _ in range(3):
    step(torch.ones(256, 64)).square().sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kernels_of_backward_have_nodes_and_lines_also_from_inductors_caches(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    caches = {
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    for text, line in ((BACKWARD, 7), (BACKWARD, 7), ("\n" + BACKWARD, 8)):
        done = tcdebug("run", "--profile", "--json", script(text), **caches)
        assert done.status == 0, done.stderr
        found = [c for c in done.json["kernels"] if c["graph"] == "0/0 backward"]
        assert {c["kind"] for c in found} == {"generated", "library"}
        generated = [c for c in found if c["kind"] == "generated"]
        assert all(c["nodes"] for c in generated)
        assert {place for c in generated for place in c["lines"]} == {
            f"{tmp_path / 'script.py'}:{line}"
        }
    places = {c["where"] for c in done.json["kernels"] if c["kind"] == "eager"}
    assert "Optimizer.step#SGD.step" in places
    assert "backward of SumBackward0" in places


def test_the_table_follows_the_output_of_the_script(tcdebug: Command, script: Script) -> None:
    done = tcdebug("run", "--profile", script(MODEL.replace("BACKEND", "'tcdebug'")))
    assert done.status == 0, done.stderr
    said, headline, limits, shared, _, columns, *_ = done.stdout.splitlines()
    assert said == "said by the script"
    assert headline.startswith("measured 3 steps of ")
    assert headline.endswith("after 1 step of warm-up; compiles are left out")
    assert limits.startswith("cpu copies at ")
    assert shared == SHARED
    assert columns.split() == ["total", "share", "alone", "nodes", "device", "line", "source"]
    assert "USDT" not in done.stderr


PACKAGED = """
class Chain(torch.nn.Module):
    def forward(self, x):
        y = x @ x
        return y.sin().exp().sum(-1)
program = torch.export.export(Chain(), (torch.ones(64, 64),))
path = torch._inductor.aoti_compile_and_package(program, package_path="chain.pt2")
package = torch._inductor.aoti_load_package(path)
for _ in range(4):
    package(torch.ones(64, 64))
"""


@pytest.mark.slow
def test_the_kernels_of_a_package_have_their_lines(
    tcdebug: Command, script: Script, tmp_path: Path
) -> None:
    done = tcdebug("run", "--profile", "--json", "--steps", "2", script(PACKAGED))
    assert done.status == 0, done.stderr
    found = done.json
    assert (found["steps"], found["warm_up"]) == (2, 1)
    kernel = next(c for c in found["kernels"] if c["kind"] == "generated")
    assert (kernel["graph"], kernel["calls"]) == ("package chain.pt2", 2)
    assert [*kernel["lines"]] == [f"{tmp_path / 'script.py'}:6"]
    product = next(c for c in found["kernels"] if "mm" in c["name"])
    assert (product["kind"], [*product["lines"]]) == ("library", [f"{tmp_path / 'script.py'}:5"])


def test_the_user_is_told_that_a_script_calls_nothing_compiled(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("run", "--profile", script("torch.ones(3).sin()\n"))
    assert done.status == 4
    assert "error TCD012: script.py called no compiled graph" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch._inductor.aoti_load_package('m.pt2')(x)", "a package of AOTInductor is observed"),
        ("torch.compile(f)", "check that it calls torch.compile"),
    ],
)
def test_the_advice_for_a_script_without_graphs_depends_on_what_it_calls(
    text: str, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    assert without_graphs(str(script)).startswith(said)


def test_a_script_that_fails_keeps_its_status_and_what_was_measured(
    tcdebug: Command, script: Script
) -> None:
    text = """
f = torch.compile(torch.sin, backend="tcdebug")
f(torch.ones(3)), f(torch.ones(3))
raise SystemExit(7)
"""
    done = tcdebug("run", "--profile", script(text))
    assert done.status == 7
    assert "measured 1 step" in done.stdout
    assert "tcdebug: the script ended with exit status 7" in done.stderr


def test_a_backend_without_kernels_has_its_operators_listed(
    tcdebug: Command, script: Script
) -> None:
    text = """
f = torch.compile(torch.sin, backend="aot_eager")
for _ in range(3):
    f(torch.ones(3))
"""
    done = tcdebug("run", "--profile", "--json", script(text))
    assert done.status == 0, done.stderr
    (sine,) = [c for c in done.json["kernels"] if c["name"] == "aten::sin"]
    assert (sine["calls"], sine["where"]) == (2, "in graph 0/0, which has no kernels")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--profile", "--check"], "--profile measures the script alone"),
        (["--profile", "--every-call"], "--profile measures the script alone"),
        (["--json"], "--json needs --profile"),
        (["--profile", "--steps", "0"], "0 is not in the range"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    inside: Command, script: Script, flags: list[str], told: str
) -> None:
    done = inside("run", *flags, script(""))
    assert done.status == 2
    assert told in done.stderr
