"""Healthy programs of which the fuzzer once said that they fail, and faults that it still sees."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_script import python_script
from tests.planted_in_dynamo import EFFECTS, PlantedUnit, nothing, program
from tests.planted_in_features import LEAF
from tests.python_findings import DrawnConstruct


def status(made: PythonProgram, folder: Path, backend: str = "eager") -> Status:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, backend, lambda phase: None, folder).status


HOOKS = DrawnConstruct("hooks of an optimizer").program()


def test_dynamo_imports_the_module_of_the_program_that_runs(tmp_path: Path) -> None:
    """The hooks of an optimizer are inlined into code of torch, which imports their module."""
    assert [status(HOOKS, tmp_path) for _ in range(2)] == [Status.PASSED] * 2


def test_a_script_runs_in_a_module_that_dynamo_can_import(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(python_script(HOOKS, {"backend": "eager"}))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    "body",
    [
        "torch.set_grad_enabled(False)\nreturn [x * 2]",
        "torch.set_default_dtype(torch.float64)\nreturn [x * 2]",
    ],
)
def test_a_program_that_changes_a_mode_is_not_exported(body: str, tmp_path: Path) -> None:
    made = program(body, way="torch.export")
    assert status(made, tmp_path) is Status.DISCARDED


@pytest.mark.parametrize("name", ["write to a view", "copy into", "index assignment"])
def test_a_functional_program_may_lose_a_gradient_that_is_zero(name: str, tmp_path: Path) -> None:
    made = DrawnConstruct(name, first=LEAF, way="torch.export, decomposed").program()
    assert status(made, tmp_path) is Status.PASSED


COUNTED = "class Root:\n    kinds = []\n    @classmethod\n    def add(cls):\n        pass"
ADDED = program("Root.kinds.append(n)\nreturn [x * len(Root.kinds)]", definitions=COUNTED)


def test_attributes_of_a_class_without_functions_are_part_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call changes one, so the next may compile again. If the change is lost, it fails."""
    assert status(ADDED, tmp_path) is Status.PASSED
    fault = PlantedUnit(EFFECTS, "codegen_update_mutated", nothing, ADDED)
    monkeypatch.setattr(fault.place, fault.name, fault.fault(getattr(fault.place, fault.name)))
    kept = program("Root.kinds.append(n)\nreturn [x * 2]", definitions=COUNTED)
    assert status(kept, tmp_path) is Status.FAILED


HISTORY = ("x = torch.ones(2, 3, requires_grad=True) * 1.0", "y = torch.ones(3)", "n = 1")


@pytest.mark.parametrize(
    "body",
    [
        "v = x * x\nx.mul_(2.0)\nreturn [v]",
        "v = x.exp()\nv.add_(1.0)\nreturn [v]",
        "v = torch.sigmoid(x)\nw = v * 2\nv[0] = 0.0\nreturn [w, v]",
        "v = y.expand(2, 3) * x\ny.add_(1.0)\nreturn [v]",
    ],
)
def test_a_program_that_writes_to_what_backward_needs_is_no_failure(
    body: str, tmp_path: Path
) -> None:
    """AOTAutograd traces backward together with forward. Eager raises only in backward."""
    made = program(body, first=HISTORY)
    assert status(made, tmp_path, "aot_eager") is Status.DISCARDED


def test_a_program_that_writes_to_what_backward_does_not_need_is_judged(tmp_path: Path) -> None:
    made = program("v = x + 1\nv.mul_(2.0)\nreturn [v]", first=HISTORY)
    assert status(made, tmp_path, "aot_eager") is Status.PASSED
