"""`--oracle layout` also compares strides and shared memory, in candidates and in repros."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from torch import fx

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.compare import Referee
from tcdebug.minifier.judging.layout import layout_difference
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.targets import Target

BASE = torch.arange(6.0).view(2, 3)
Results = tuple[Sequence[Any], Sequence[Any]]


@pytest.mark.parametrize(
    ("eager", "actual", "what"),
    [
        (([BASE], []), ([BASE.t().contiguous().t()], []), "strides"),
        (([BASE[:1]], []), ([torch.empty_strided((1, 3), (7, 1))], []), None),
        (([BASE[:0]], []), ([torch.empty(3, 0).t()], []), None),
        (([BASE, BASE[0]], []), ([BASE, BASE[0].clone()], []), "aliasing"),
        (([BASE.view(6)], [BASE]), ([torch.arange(6.0)], [BASE]), "aliasing"),
        (([torch.ones(2), 3], [BASE]), ([torch.ones(2), 3], [BASE]), None),
    ],
)
def test_strides_of_larger_dimensions_and_shared_memory_are_compared(
    eager: Results, actual: Results, what: str | None
) -> None:
    found = layout_difference(eager, actual)
    assert (found and found.what) == what


def transposing(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Returns two-dimensional results in column-major order."""
    return lambda *values: [v.t().contiguous().t() for v in module(*values)]


def copying(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Returns no views."""
    return lambda *values: [v.clone() for v in module(*values)]


def judged(target: Target, referee: Referee, folder: Path) -> Outcome:
    case = captured(lambda x: x[:2], torch.ones(3, 4))
    name = str(folder / "case.py")
    return judge(case, target, Toggles(), lambda phase: None, name, referee)


@pytest.mark.parametrize(("backend", "what"), [(transposing, "strides"), (copying, "aliasing")])
def test_only_the_layout_oracle_sees_the_layout(backend: Any, what: str, tmp_path: Path) -> None:
    target = backends.target(backend)
    assert judged(target, Referee.LAYOUT, tmp_path).signature == f"forward | wrong {what}"
    assert not judged(target, Referee.DEFAULT, tmp_path).failed


SET_UP = """

def set_up(then):
    def broken(module, inputs):
        return lambda *values: [{change} for v in module(*values)]
    CALL["backend"] = broken
    then()
"""


@pytest.mark.parametrize(
    ("what", "change", "status"),
    [
        ("strides", "v", 0),
        ("aliasing", "v.clone()", 1),
    ],
)
@pytest.mark.usefixtures("warm")
def test_a_repro_judges_layout_if_that_was_the_failure(
    what: str, change: str, status: int, tmp_path: Path
) -> None:
    case = captured(lambda x: x[:2], torch.ones(3, 4))
    outcome = Outcome(Kind.WRONG, "forward", f"forward | wrong {what}")
    content = Repro(outcome, {"backend": "broken"}, setup=SET_UP.format(change=change))
    write(case, content, tmp_path / "repro.py")
    done = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
