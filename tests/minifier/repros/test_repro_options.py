"""Options of repro scripts: an unknown unit or option is bad usage, never a verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from captured import captured

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.process import finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.repros.repro import Repro, write

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")


@pytest.fixture(scope="module")
def repros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return repro scripts of a healthy graph, for the embedded compiler and for inductor."""
    folder = tmp_path_factory.mktemp("repros")
    case = captured(lambda x: x.tanh() * 2, torch.ones(3))
    for backend in ("tcdebug", "inductor"):
        write(case, Repro(WRONG, {"backend": backend}), folder / f"{backend}.py")
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("script", "option", "status", "said"),
    [
        ("tcdebug", "--off=fuze.vertical", 2, "no unit 'fuze.vertical'; the nearest are: fuse"),
        ("tcdebug", "--only=passes.algebrac", 2, "passes.algebraic"),
        ("tcdebug", "--bogus", 2, "no option '--bogus'; there is --off= --only="),
        ("tcdebug", "fuse", 2, "no option 'fuse'"),
        ("tcdebug", "--off=fuse.vertical", 0, "it does not fail"),
        ("inductor", "--off=lower.aten.tanhh.default", 2, "lower.aten.tanh.default"),
        ("inductor", "--off=postgrad.no_such_pattern", 2, "no step of this compile was called"),
        ("inductor", "--off=lower.aten.tanh.default", 0, "it does not fail"),
        ("inductor", "--help", 0, "--off=UNIT and --only=UNIT"),
    ],
)
@pytest.mark.usefixtures("warm")
def test_an_option_that_names_nothing_is_a_usage_error(
    repros: Path, script: str, option: str, status: int, said: str
) -> None:
    output = repros / "output"
    command = [sys.executable, f"{script}.py", option]
    ended = finished(spawn(command, dict(os.environ), folder=repros, output=output))
    assert ended.returncode == status, output.read_text()
    assert said in output.read_text()
