"""A process in which nothing compiles any more does not let all programs pass in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C import _functorch
from torch_versions import needs_torch

from tcdebug.fuzz.python import process_state
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.python.python_program import PythonProgram
from tests.planted_in_dynamo import program
from tests.python_findings import PLAIN, DrawnConstruct

HEALTHY = program("return [x * 2]")


def verdict(made: PythonProgram, folder: Path) -> ProgramVerdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, "eager", lambda phase: None, folder)


@pytest.fixture
def leaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Transforms that a program leaves open stay open until the end of the test."""
    leave = process_state._leave_transforms
    monkeypatch.setattr(process_state, "_leave_transforms", lambda: None)
    yield
    leave()


def set_stance(name: str) -> None:
    torch.compiler.set_stance(name)


def set_disabled(*, disabled: bool) -> None:
    torch._dynamo.config.disable = disabled


LEFT: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "jvp": (_functorch._jvp_increment_nesting, _functorch._jvp_decrement_nesting),
    "vmap": (
        lambda: _functorch._vmap_increment_nesting(2, "error"),
        _functorch._vmap_decrement_nesting,
    ),
    "stance": (lambda: set_stance("force_eager"), lambda: set_stance("default")),
    "disabled": (lambda: set_disabled(disabled=True), lambda: set_disabled(disabled=False)),
}
"""What makes Dynamo compile nothing, and what undoes it."""


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.usefixtures("leaking")
def test_a_program_that_passes_uncompiled_since_nothing_compiles_is_told_from_healthy_ones(
    left: str, tmp_path: Path
) -> None:
    enter, leave = LEFT[left]
    assert verdict(HEALTHY, tmp_path).compiles
    enter()
    try:
        blind = verdict(HEALTHY, tmp_path)
    finally:
        leave()
    assert (blind.status, blind.compiles) == (Status.PASSED, False)
    assert verdict(HEALTHY, tmp_path).compiles


@needs_torch("2.13", "export leaves the transform")
@pytest.mark.usefixtures("leaking")
def test_an_exported_program_that_leaves_a_transform_open_is_seen_at_the_next_program(
    tmp_path: Path,
) -> None:
    verdict(DrawnConstruct("jvp over vjp", first=PLAIN, way="torch.export").program(), tmp_path)
    assert _functorch.peek_interpreter_stack() is not None
    assert not verdict(HEALTHY, tmp_path).compiles


@pytest.mark.parametrize(
    ("body", "way"),
    [
        ("return [x]", "torch.compile"),
        ("torch._dynamo.graph_break()\nreturn [x]", "torch.compile"),
        ("return [x * 2]", "torch.export"),
        ("return [x * 2]", "second process"),
    ],
)
def test_a_program_of_which_nothing_is_compiled_here_says_nothing_of_its_process(
    body: str, way: str, tmp_path: Path
) -> None:
    found = verdict(program(body, way=way), tmp_path)
    assert (found.status, found.compiles) == (Status.PASSED, True)


def test_a_campaign_whose_processes_compile_nothing_ends_with_an_internal_error(
    tcdebug: Any, tmp_path: Path
) -> None:
    (tmp_path / "setup.py").write_text('import torch\ntorch.compiler.set_stance("force_eager")\n')
    done = tcdebug(
        "fuzz", "run", "--programs=python", "--backend=eager", "--examples=40", "--seed=2",
        "--setup=setup.py", "--no-bisect", "-q",
    )  # fmt: skip
    assert done.status == 3, done.stdout + done.stderr
    assert "compiles nothing any more; its last programs are" in done.stderr
    kept = sorted(path.name for path in tmp_path.glob(".tcdebug/*/worker-0/uncompiled_*.py"))
    assert kept[0] == "uncompiled_0.py"
