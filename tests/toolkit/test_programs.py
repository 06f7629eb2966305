"""Programs that are not scripts: -m, -c, pytest and other installed commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from planted_scripts import WRONG_SIN_FIXTURE

from tcdebug.cli.program import as_script, code_text

Command = Callable[..., Any]

MODEL = """
import torch


def plant():
    from tcdebug.compiler.lower.tables import LOWERINGS
    from tcdebug.compiler.registry import REGISTRY

    right = LOWERINGS[torch.ops.aten.sin.default]
    REGISTRY.lowerings[torch.ops.aten.sin.default] = lambda site, x: right(site, right(site, x))


def f(x):
    return torch.sin(x)
"""
MAIN = """
import sys
import torch
from .model import f, plant

print(__name__, sys.argv[1:], __package__)
plant()
torch.compile(f, backend="tcdebug")(torch.ones(3))
"""
TEST = (
    WRONG_SIN_FIXTURE
    + """

def test_wrong(planted):
    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(torch.sin, backend="tcdebug")(x), x.sin())
"""
)


@pytest.fixture
def package(tmp_path: Path) -> None:
    """A package and a test file in the working folder."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "model.py").write_text(MODEL)
    (tmp_path / "pkg" / "__main__.py").write_text(MAIN)
    (tmp_path / "test_it.py").write_text(TEST)


@pytest.mark.parametrize("words", [["-m", "pkg"], ["-mpkg"], ["python", "-u", "-m", "pkg"]])
@pytest.mark.usefixtures("package")
def test_a_module_runs_as_python_runs_it(tcdebug: Command, words: list[str]) -> None:
    done = tcdebug("run", "--check", *words, "-c", "3")
    assert done.stdout == "__main__ ['-c', '3'] pkg\n", done.stderr
    assert done.status == 1
    assert done.last_line.endswith("graphs/0/repro.py")


@pytest.mark.usefixtures("package")
def test_code_runs_as_python_runs_it(tcdebug: Command) -> None:
    code = """from __future__ import annotations
import sys, torch, pkg.model
print(__name__, sys.argv)
torch.compile(pkg.model.f, backend="eager")(torch.ones(3))"""
    done = tcdebug("explain", "--json", "-c", code, "-x")
    assert done.status == 0, done.stderr
    assert len(done.json["frames"]) == 1
    done = tcdebug("run", "-c", code, "-x")
    assert done.stdout == "__main__ ['-c', '-x']\n"


@pytest.mark.usefixtures("package")
def test_an_installed_command_runs(tcdebug: Command) -> None:
    done = tcdebug("run", "--check", "pytest", "-q", "test_it.py::test_wrong")
    assert done.status == 1
    assert "1 failed" in done.stdout
    assert done.last_line.endswith("graphs/0/repro.py"), done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_graph_of_a_test_is_judged_where_the_test_stands(
    tcdebug: Command, python: Command
) -> None:
    done = tcdebug("bisect", "--json", "pytest", "-q", "test_it.py")
    report = done.json
    assert done.status == 0, report
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sin.default"]
    assert python(report["repro"]).status == 1
    assert python(report["repro"], "--off=lower.aten.sin.default").status == 0


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "name", "rest"),
    [
        (["script.py", "-m", "x"], "script.py", ["-m", "x"]),
        (["-m", "a.b", "--flag"], "a.b", ["--flag"]),
        (["-cprint(1)"], "code", []),
        (["python3.11", "-c", "1", "2"], "code", ["2"]),
        ([sys.executable, "script.py", "1"], "script.py", ["1"]),
        ([sys.executable, "-m", "a.b"], "a.b", []),
        (["torchrun", "--nproc-per-node=2", "x.py"], "torchrun", ["--nproc-per-node=2", "x.py"]),
        (["pytest", "-k", "x"], "pytest", ["-k", "x"]),
        (["no_such_command", "x"], "no_such_command", ["x"]),
    ],
)
def test_the_arguments_of_a_program_become_a_script_and_its_arguments(
    words: list[str], name: str, rest: list[str]
) -> None:
    Path("a").mkdir()
    for file in ("script.py", "a/b.py"):
        Path(file).touch()
    script, *arguments = as_script(words)
    assert arguments == rest
    assert Path(script).name.startswith(name)
    assert as_script(words) == [script, *rest]


def test_a_file_comes_before_a_command_of_the_same_name() -> None:
    Path("pytest").touch()
    assert as_script(["pytest"]) == ["pytest"]


def test_the_error_names_what_is_missing_after_an_option() -> None:
    with pytest.raises(click.UsageError, match="-m needs an argument"):
        as_script(["-m"])


def test_a_python_of_another_environment_is_refused() -> None:
    with pytest.raises(click.UsageError, match="install tcdebug for that one, or leave it out"):
        as_script(["/other/environment/bin/python", "script.py"])


def test_future_imports_of_code_stay_first() -> None:
    text = code_text("from __future__ import annotations\nx: y = 1")
    compile(text, "code", "exec")
    assert text.startswith("from __future__ import annotations\n")
    assert code_text("x = (") == "x = ("


READING = """
import os, sys, tempfile
from pkg.model import f, plant

sizes = [int(line) for line in sys.stdin]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
plant()
for size in sizes:
    torch.compile(f, backend="tcdebug")(torch.ones(size))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_script_that_reads_a_file_as_stdin_and_leaves_its_folder_is_searched(
    script: Callable[[str], str], tmp_path: Path, environment: Mapping[str, str]
) -> None:
    (tmp_path / "sizes").write_text("3\n5\n")
    command = [sys.executable, "-m", "tcdebug", "bisect", "--json", script(READING)]
    with (tmp_path / "sizes").open() as given:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, stdin=given, capture_output=True, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["culprits"][0]["unit"] == "lower.aten.sin.default"
    assert (Path(report["repro"]).parent / "repro_input").read_text() == "3\n5\n"
