"""tcdebug.bisect and tcdebug.explain: one call of a function of a running program."""

from __future__ import annotations

import random
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_scripts import WRONG_SIN

import tcdebug
from tcdebug.api.call_script import written_call
from tcdebug.api.comparing import NOT_COMPARED

Command = Callable[..., Any]
Script = Callable[[str], str]
EAGER = {"backend": "eager"}


class Counter:
    """Counts calls, twice as fast when compiled."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, x: Any) -> Any:
        self.calls += 2 if torch.compiler.is_compiling() else 1
        return x * 2


def made(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Make a call as a search makes it, with random numbers that are those of another process."""
    script = written_call(function, args, kwargs, EAGER)
    random.seed()
    torch.seed()
    runpy.run_path(str(script))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path[:])  # a script replaces it


def test_a_call_that_agrees_with_eager_passes() -> None:
    scale = torch.tensor([0.1, 3.0])
    log: list[Any] = []

    def function(x: Any, *, times: int) -> Any:
        log.append(x)
        x.add_(1)
        return {"sum": (x * scale).sum(), "times": [times, None]}

    made(function, torch.ones(2), times=3)
    assert log == []  # the call is made with copies


@pytest.mark.parametrize(
    ("function", "args", "what"),
    [
        (
            lambda x: x + 1 if torch.compiler.is_compiling() else x,
            (torch.zeros(3),),
            "compiled, result is different from eager: 3 of 3 out of tolerance, "
            "worst 1 instead of 0",
        ),
        (
            lambda box, x: box.count(x),
            (Counter(), torch.ones(2)),
            "compiled, args[0].calls is different from eager: 2 instead of 1",
        ),
    ],
    ids=["result", "argument"],
)
def test_a_difference_from_eager_fails(
    function: Callable[..., Any], args: tuple[Any, ...], what: str
) -> None:
    with pytest.raises(AssertionError) as failed:
        made(function, *args)
    assert str(failed.value) == what


def test_a_compiled_function_is_recompiled() -> None:
    backends: list[str] = []

    def backend(module: Any, inputs: Any) -> Any:
        backends.append("called")
        return module.forward

    made(torch.compile(lambda x: x.sin(), backend=backend), torch.ones(2))
    assert backends == []


def test_calls_with_random_numbers_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        return torch.rand(2) + (x if torch.compiler.is_compiling() else 0)

    made(function, torch.ones(2))
    assert NOT_COMPARED in capsys.readouterr().out


def test_a_call_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(tcdebug.NotSaved, match=r"cannot pickle .*Write it as a script"):
        tcdebug.bisect(lambda lock: lock, threading.Lock())


@pytest.mark.parametrize("command", [tcdebug.bisect, tcdebug.explain])
def test_a_misspelt_backend_is_refused_before_a_process_starts(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(tcdebug.UnknownBackend, match="the nearest are: inductor"):
        command(torch.sin, torch.ones(2), backend="inducter")
    assert list(tmp_path.iterdir()) == []


def test_the_unit_at_fault_is_found_for_a_call_in_a_program(
    python: Command, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "planted.py").write_text("import torch\n" + WRONG_SIN + "wave = torch.sin\n")
    text = """
import planted, tcdebug
def function(x, times):
    return planted.wave(x * times + 1)
report = tcdebug.bisect(function, torch.ones(3), times=2, backend="tcdebug", quiet=True)
print(report.status, [culprit.unit for culprit in report.culprits], report.nodes_after)
found = tcdebug.explain(function, torch.ones(3), 2, backend="eager", quiet=True)
print(len(found.frames), len(found.breaks))
"""
    done = python(script(text))
    assert done.stdout == ("confirmed ['lower.aten.sin.default'] 1\n1 0\n"), done.stderr
