"""Healthy programs of which the fuzzer once said that they fail, and faults that it still sees."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import InternalTorchDynamoError
from torch_versions import needs_torch

from tcdebug.fuzz.python.compiling import Compilation
from tcdebug.fuzz.python.deviation import first_deviation
from tcdebug.fuzz.python.execution import Execution
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.python.process_state import own_process_state
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_script import python_script
from tcdebug.strategies.python.ways import WAYS
from tests.planted_in_dynamo import EFFECTS, PLANTED, PlantedUnit, nothing, program
from tests.planted_in_features import LEAF
from tests.python_findings import PLAIN, DrawnConstruct


def status(made: PythonProgram, folder: Path, backend: str = "eager") -> Status:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, backend, lambda phase: None, folder).status


HOOKS = DrawnConstruct("hooks of an optimizer").program()


def test_dynamo_imports_the_module_of_the_program_that_runs(tmp_path: Path) -> None:
    """The hooks of an optimizer are inlined into code of torch, which imports their module."""
    assert [status(HOOKS, tmp_path) for _ in range(2)] == [Status.PASSED] * 2


def test_a_script_runs_in_a_module_that_dynamo_can_import(tmp_path: Path, warm_python: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(python_script(HOOKS, {"backend": "eager"}))
    done = subprocess.run([warm_python, path], capture_output=True, text=True, check=False)
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


@pytest.mark.parametrize(
    "body",
    [
        "if x.sum() > 0:\n    x = x + 1\nreturn [x]",
        "assert not torch.compiler.is_exporting()\nreturn [x]",
        "if torch.compiler.is_exporting():\n    x = x + 1\nreturn [x]",
        "return [x * 2 if torch.compiler.is_exporting() else x]",
        "levels = {False: x}\nreturn [levels[torch.compiler.is_exporting()]]",
        "return [x + torch.ones(x.int().sum().item() % 3)]",
    ],
)
@pytest.mark.parametrize("way", ["torch.export", "torch.export, strict"])
def test_what_export_refuses_and_what_the_program_itself_raises_there_is_discarded(
    body: str, way: str, tmp_path: Path
) -> None:
    assert status(program(body, way=way), tmp_path) is Status.DISCARDED


ENTERS = {
    "torch.func": "torch._C._functorch._grad_increment_nesting()\nreturn [x]",
    "vmap": "torch._C._functorch._vmap_increment_nesting(2, 'error')\nreturn [x]",
    "forward mode": "torch.autograd.forward_ad.enter_dual_level()\nreturn [x]",
}


@pytest.mark.parametrize("body", ENTERS.values(), ids=ENTERS)
def test_a_transform_that_a_program_does_not_leave_ends_with_it(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo would compile none of the programs that follow, so they would all pass."""
    status(program(body), tmp_path)
    assert torch._C._functorch.peek_interpreter_stack() is None
    assert torch.autograd.forward_ad._current_level == -1
    fault = PLANTED["lost side effects"]
    monkeypatch.setattr(fault.place, fault.name, fault.fault(getattr(fault.place, fault.name)))
    assert status(fault.program, tmp_path) is Status.FAILED


def test_a_failure_inside_a_transform_of_an_exported_program_is_one(tmp_path: Path) -> None:
    made = DrawnConstruct("jvp over vjp", first=PLAIN, way="torch.export").program()
    assert status(made, tmp_path) is Status.FAILED
    assert torch._C._functorch.peek_interpreter_stack() is None


def _unknown_key() -> object:
    return {}["none"]


def _internal() -> object:
    raise InternalTorchDynamoError("no such variable")


def _unknown_key_in_a_graph() -> None:
    torch.fx.Interpreter(torch.fx.symbolic_trace(lambda x: _leaf(x))).run(1)


def _unknown_key_of_torch_in_a_graph() -> None:
    """An interpreter raises a KeyError again as a RuntimeError, which hid it."""
    torch.fx.Interpreter(torch.fx.symbolic_trace(lambda x: _none(x))).run(1)


@torch.fx.wrap
def _leaf(x: object) -> object:
    return {}[x]


@torch.fx.wrap
def _none(x: object) -> object:
    return torch.nn.ModuleDict({})["none"]


@pytest.mark.parametrize(
    ("raises", "internal"),
    [
        (lambda: torch.nn.Module().none, True),
        (lambda: torch.nn.ModuleDict({})["none"], True),
        (lambda: torch.ones(2) + torch.ones(3), False),
        (lambda: torch.nn.Module()(1), False),
        (lambda: [][0], False),
        (_unknown_key, False),
        (_unknown_key_in_a_graph, False),
        (_unknown_key_of_torch_in_a_graph, True),
        (_internal, True),
    ],
)
def test_only_a_mistake_in_a_frame_of_torch_is_internal(
    raises: Callable[[], object], internal: bool
) -> None:
    names: dict[str, Any] = {"torch": torch}
    exec(WAYS["torch.export"].definition, names)
    with pytest.raises(Exception) as raised:
        raises()
    assert names["is_internal"](raised.value) is internal


@pytest.mark.parametrize("name", ["write to a view", "copy into", "index assignment"])
def test_a_functional_program_may_lose_a_gradient_that_is_zero(name: str, tmp_path: Path) -> None:
    made = DrawnConstruct(name, first=LEAF, way="torch.export, decomposed").program()
    assert status(made, tmp_path) is Status.PASSED


COUNTED = "class Root:\n    kinds = []\n    @classmethod\n    def add(cls):\n        pass"
ADDED = program("Root.kinds.append(n)\nreturn [x * len(Root.kinds)]", definitions=COUNTED)


@needs_torch("2.12", "Dynamo loses the change")
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


def runs_alone(made: PythonProgram, folder: Path) -> object:
    """What the script of a program says: None, or the first difference."""
    path = folder / "program.py"
    path.write_text(python_script(made, {"backend": "eager"}))
    names: dict[str, Any] = {"__name__": "script", "__file__": str(path)}
    with own_process_state():
        exec(path.read_text(), names)
        try:
            names["main"]()
        except SystemExit as ended:
            return ended.code
        finally:
            for name in ("eager", "compiled"):
                sys.modules.pop(name, None)
            torch._dynamo.reset()
    return None


@pytest.mark.parametrize(
    ("definitions", "body"),
    [
        ("LAYER = torch.nn.Linear(3, 3)", "return [LAYER(x)]"),
        ("import random", "return [x * random.random()]"),
        ("", "return [x + torch.rand(3)]"),
        ("", "v = x * x\ntorch.set_grad_enabled(False)\nreturn [v, x * 2]"),
        ("", "torch.set_default_dtype(torch.float64)\nreturn [x, torch.ones(3)]"),
        ("import os", "os.environ['DRAWN'] = os.environ.get('DRAWN', '') + 'a'\nreturn [x]"),
    ],
)
def test_a_script_gives_compiled_the_process_that_eager_had(
    definitions: str, body: str, tmp_path: Path
) -> None:
    """Seeds, modes and variables that eager has used or left would make a healthy program fail."""
    first = ("x = torch.ones(2, 3, requires_grad=True)", "y = torch.ones(3)", "n = 1")
    assert runs_alone(program(body, definitions=definitions, first=first), tmp_path) is None


@needs_torch("2.12", "Dynamo loses these effects")
@pytest.mark.parametrize(
    ("definitions", "body"),
    [
        ("def kept(value, seen=[]):\n    seen.append(1)\n    return value", "return [kept(x) * 2]"),
        (COUNTED, "Root.kinds.append(n)\nreturn [x * 2]"),
        ("TABLE = {'a': 1, 'b': 2}", "TABLE['a'] = TABLE.pop('a')\nreturn [x * 2]"),
    ],
)
def test_a_script_sees_effects_on_defaults_classes_and_the_order_of_keys(
    definitions: str, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(body, definitions=definitions)
    assert runs_alone(made, tmp_path) is None
    fault = PlantedUnit(EFFECTS, "codegen_update_mutated", nothing, made)
    monkeypatch.setattr(fault.place, fault.name, fault.fault(getattr(fault.place, fault.name)))
    assert str(runs_alone(made, tmp_path)).startswith("after call 1, ")


def test_what_torch_calls_an_unsupported_object_is_no_failure_of_an_export(tmp_path: Path) -> None:
    """Export that is not strict says of a complex number that it accepts no such argument."""
    first = ("x = torch.ones(2, 3)", "y = torch.ones(3)", "n = 1j")
    for way in ("torch.export", "torch.export, strict"):
        made = program("return [x * 2]", first=first, way=way)
        assert status(made, tmp_path, "aot_eager") is Status.DISCARDED


def test_rows_that_a_batch_norm_normalises_are_not_equal(tmp_path: Path) -> None:
    """Of equal rows, the result would be the rounding of their mean, times 316."""
    made = DrawnConstruct("batch norm", first=(PLAIN[0], "y = x", "n = 1"), wanted=("y",)).program()
    assert status(made, tmp_path, "tcdebug") is Status.PASSED


def test_an_object_that_waits_for_the_garbage_collector_is_freed_before_the_next_call(
    tmp_path: Path,
) -> None:
    """A compile may leave a reference cycle with the object, whose end a weak reference sees."""
    made = DrawnConstruct("weak reference", "TARGET = None", first=PLAIN).program()

    def keeping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            cycle: list[Any] = [function.__globals__["TARGET"]]
            cycle.append(cycle)
            return function(*arguments)

        return call

    eager = Execution(made, tmp_path / "program.py", lambda function: function).states()
    gc.disable()
    try:
        compiled = Execution(made, tmp_path / "program.py", keeping).states()
    finally:
        gc.enable()
    assert first_deviation(eager, compiled, "") is None


def test_a_capture_that_starts_again_counts_as_one_graph(tmp_path: Path) -> None:
    """The scalars of a float64 tensor make AOTAutograd ask for a second capture.

    A process whose cache has the graph needs one.
    """
    made = program("return [y * 3.0]", first=(PLAIN[0], "y = torch.tensor(1.0).double()", "n = 1"))
    backend = torch._dynamo.lookup_backend("aot_eager")
    compilation = Compilation(made, tmp_path / "program.py", backend, lambda phase: None)
    assert [state.compiles for state in compilation.compiled()] == [1, 1]
