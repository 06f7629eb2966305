"""Repros that need what the user's script sets up: its backend, its patches, its functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import module_source
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.script_setup import Script, script_setup, sets_up

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "planted")
SCRIPT = """
import sys
import torch

STEP = float(sys.argv[1])
print("loading")
print("found 3 devices", flush=True)  # as a line of a result begins


@torch._dynamo.allow_in_graph
def twice(x):
    return x * 2


def backend(module, inputs):
    assert STEP == float(sys.argv[1])
    return lambda *values: [v + STEP for v in module(*values)]


torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
torch.compile(lambda x: twice(x).tanh(), backend=backend)(torch.ones(3))
raise AssertionError("past the failing graph")
"""
IN_THREAD = f"""{SCRIPT[: SCRIPT.rindex("torch.compile")]}
import threading
second = torch.compile(lambda x: twice(x).tanh(), backend=backend)
threading.Thread(target=second, args=(torch.ones(3),)).start()
sys.exit(3)
"""
IN_BACKWARD = f"""{SCRIPT[: SCRIPT.rindex("torch.compile")]}
x = torch.ones(3, requires_grad=True)
with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend, fullgraph=True)):
    x.tan().sum().backward()
raise AssertionError("past the failing graph")
"""
PACKAGED = """
import torch


def takes_tanh_for_sin(graph):
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
        node.target = torch.ops.aten.sin.default


with torch.no_grad():
    program = torch.export.export(torch.nn.Tanh(), (torch.ones(3),))
    passes = {"post_grad_custom_post_pass": takes_tanh_for_sin, "aot_inductor.package": True}
    torch._inductor.aoti_compile_and_package(program, inductor_configs=passes)
raise AssertionError("past the failing graph")
"""
LIMITED = (
    SCRIPT.replace("import sys\n", "import os\nimport signal\nimport sys\nimport tempfile\n", 1)
    .replace("v + STEP", "v + STEP * (bool(os.getcwd()) and not signal.getitimer(0)[0])")
    .replace("torch.compile(lambda x: twice", "leave()\ntorch.compile(lambda x: twice")
    .replace(
        "def backend",
        "def leave():\n    signal.alarm(500)\n    os.chdir(tempfile.mkdtemp())\n"
        "    os.rmdir(os.getcwd())\n\n\ndef backend",
    )
)
"""A script with a timer and a removed folder. Its backend is wrong only without them."""


@torch._dynamo.allow_in_graph
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """Return the case of the script's second graph, as in the script's own process."""
    monkeypatch.setattr(twice, "__module__", "__main__")
    return captured(lambda x: twice(x).tanh(), torch.ones(3))


def main_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit status of a repro script. It forks, so its patches stay in its child."""
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    monkeypatch.setattr(sys, "argv", [path.name])
    with open(1, "w", closefd=False, buffering=1) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)  # the child writes to descriptor 1
        status: int = names["main"]()
    return status


@pytest.mark.parametrize(
    ("edit", "status", "text"),
    [
        ("", 1, SCRIPT), ("gone", 1, SCRIPT), ("changed", 1, SCRIPT), ("both changed", 125, SCRIPT),
        ("", 1, IN_THREAD), ("", 1, LIMITED),
    ],
)  # fmt: skip
def test_an_unchanged_script_provides_its_backend_and_functions(
    edit: str, status: int, text: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "model.py"
    script.write_text(text)
    folder = tmp_path / "out"
    folder.mkdir()
    setup = script_setup(Script(str(script), ("1.0",)), 1, folder)
    if edit == "gone":
        script.unlink()
    elif edit:
        script.write_text("raise KeyError")
    assert module_source(case.module).foreign == ("main___twice",)
    write(case, Repro(WRONG, {"backend": None}, setup=setup), folder / "repro.py")
    assert (folder / "repro_script.py").read_text() == text
    if edit == "both changed":
        (folder / "repro_script.py").write_text(SCRIPT + "\n")
    assert main_of(folder / "repro.py", monkeypatch) == status


def test_a_script_provides_its_backend_inside_a_backward_pass_that_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "model.py"
    script.write_text(IN_BACKWARD)
    setup = script_setup(Script(str(script), ("1.0",)), 1, tmp_path)
    case = captured(lambda x: x.tan(), torch.ones(3, requires_grad=True))
    write(case, Repro(WRONG, {"backend": None}, setup=setup), tmp_path / "repro.py")
    assert main_of(tmp_path / "repro.py", monkeypatch) == 1


def test_a_script_provides_the_passes_with_which_it_packages_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "model.py"
    script.write_text(PACKAGED)
    setup = script_setup(Script(str(script)), 0, tmp_path)
    case = captured(torch.tanh, torch.ones(3))
    write(case, Repro(WRONG, {"backend": None}, setup=setup), tmp_path / "repro.py")
    assert main_of(tmp_path / "repro.py", monkeypatch) == 1


def test_without_its_script_a_function_is_missing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(case, Repro(WRONG, {"backend": "eager"}), tmp_path / "repro.py")
    assert main_of(tmp_path / "repro.py", monkeypatch) == 125


def test_a_backend_that_needs_set_up_is_recognised_by_its_mark() -> None:
    def stop() -> None:
        pass

    assert not sets_up(stop)
    assert not sets_up("eager")
    stop.tcdebug_setup = True  # type: ignore[attr-defined] # the mark
    assert sets_up(stop)


def test_the_running_script_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(sys, "argv", ["x", "--a", "b"])
    monkeypatch.setattr(main, "__file__", __file__, raising=False)
    assert Script.running() == Script(__file__, ("--a", "b"))
    monkeypatch.setattr(main, "__file__", str(tmp_path / "missing.py"))
    assert Script.running() is None
    monkeypatch.delattr(main, "__file__")
    assert Script.running() is None
