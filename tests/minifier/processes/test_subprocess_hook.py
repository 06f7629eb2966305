"""Processes that a script starts: what they inherit, and that nothing else of theirs changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tcdebug.minifier.processes.subprocess_hook import (
    VARIABLE,
    environment_without_hook,
    hook_installed,
)
from tcdebug.minifier.repros.script_setup import Script, script_setup
from tcdebug.minifier.repros.verify import verify

SEEN = """
import sys, os
from importlib.machinery import PathFinder
print(getattr(sys, "users_own", None), any("site" == os.path.basename(p) for p in sys.path))
print([type(f).__name__ for f in sys.meta_path][:1], "torch" in sys.modules)
"""


def python(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_sitecustomize_of_the_user_is_run_and_torch_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.users_own = 'ran'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with hook_installed("off:", tmp_path / "run"):
        assert python(SEEN).splitlines() == ["ran False", "['AfterImport'] False"]
        outside = environment_without_hook()
        assert (outside["PYTHONPATH"], VARIABLE in outside) == (str(tmp_path), False)
    assert os.environ["PYTHONPATH"] == str(tmp_path)
    assert VARIABLE not in os.environ
    assert environment_without_hook() == dict(os.environ)


def test_without_a_sitecustomize_python_starts_as_it_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with hook_installed("off:", tmp_path):
        assert python(SEEN).splitlines() == ["None False", "['AfterImport'] False"]
        assert "PYTHONPATH" not in environment_without_hook()
    assert "PYTHONPATH" not in os.environ


def test_a_repro_finds_the_packages_that_pythonpath_names_while_the_hook_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "installed_elsewhere.py").write_text("ANSWER = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    repro = tmp_path / "repro.py"
    repro.write_text("import sys, installed_elsewhere\nprint(sys.modules.get('tcdebug'))\n")
    with hook_installed("off:", tmp_path / "run"):
        seen = verify(repro, (), 60.0)
    assert (seen.status, seen.output) == (0, "None\n")


@pytest.mark.slow
def test_units_are_off_in_processes_that_are_started_in_the_block() -> None:
    import tcdebug  # noqa: PLC0415 - the public name

    text = """
import torch
from torch._inductor import lowering
right = lowering.lowerings[torch.ops.aten.sin.default]
lowering.lowerings[torch.ops.aten.sin.default] = lambda x: right(right(x))
print(float(torch.compile(torch.sin)(torch.ones(1))))
"""
    with tcdebug.switched_off("lower.aten.sin.default"):
        assert float(python(text)) == pytest.approx(0.84147, abs=1e-4)


def test_a_script_of_multiprocessing_is_imported_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "user.py"
    source.write_text("def mine(graph, inputs): ...\nassert __name__ == '__mp_main__'\n")
    folder = tmp_path / "repro"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    setup = script_setup(Script(str(source), ("1",), imported=True), 0, folder, "mine")
    given: dict[str, Any] = {
        "os": os, "sys": sys, "CALL": {"backend": None}, "Graph": torch.nn.Identity,
        "__file__": str(folder / "repro.py"),
    }  # fmt: skip
    exec(setup, given)  # as a repro script does
    then: list[str] = []
    given["set_up"](lambda: then.append("the graph"))
    assert then == ["the graph"]
    assert given["CALL"]["backend"].__name__ == "mine"
    assert (folder / "repro_script.py").read_text() == source.read_text()


def test_a_rank_is_set_up_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "user.py"
    source.write_text("")
    assert "WORLD_SIZE" not in script_setup(Script(str(source)), 0, tmp_path)
    monkeypatch.setenv("RANK", "1")
    assert "'WORLD_SIZE': '1'" in script_setup(Script(str(source)), 0, tmp_path)
