"""Failures with the cause of a listed finding are recognised in other features, and no others."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from torch_versions import VERSION, needs_torch

from tcdebug.fuzz.findings import Findings, State
from tcdebug.fuzz.hunt import Found
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.python.listed import listed_cause
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.fuzz.worker import Worker
from tcdebug.reading.run_dir import Tail
from tcdebug.strategies.kinds import ProgramKind
from tcdebug.strategies.python.python_program import CallStep, PythonProgram, parsed_lines
from tests.planted_in_dynamo import PLANTED, program
from tests.python_findings import CONSTRUCTS, FIRST, PLAIN, DrawnConstruct


def judged(made: PythonProgram, folder: Path, backend: str = "eager") -> ProgramVerdict:
    """The verdict on a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, backend, lambda phase: None, folder)


def cause_of(made: PythonProgram, folder: Path, backend: str = "eager") -> str:
    """The listed cause of the failure of a program, which must fail."""
    verdict = judged(made, folder, backend)
    assert verdict.status is Status.FAILED
    return listed_cause(
        made, verdict.signature, verdict.message,
        lambda other: judged(other, folder, backend).status is Status.PASSED,
    )  # fmt: skip


EXPANDED = ("x = torch.ones(1, 1, requires_grad=True).expand(2, 3)", "y = x", "n = 1")
ROUNDED = DrawnConstruct("rounded number", first=(*PLAIN[:2], "n = 2"), dynamic=True)
OTHER_FEATURES = [
    ("deque_full", DrawnConstruct("append to a full deque", first=PLAIN)),
    ("round_number", replace(ROUNDED, way="scaled")),
    ("dict_order", CONSTRUCTS["keywords_order"]),
    ("replaced_method", DrawnConstruct("__neg__", "Ranked.__neg__ = lambda self: OTHER")),
    ("instance_dict", DrawnConstruct("key in __dict__", "PLAIN.other = 1.0")),
    ("negative_zero", CONSTRUCTS["zero_sign"]),
    ("function_identity", replace(CONSTRUCTS["function_identity"], then="add")),
    ("export_gradient", replace(CONSTRUCTS["export_gradient"], feature="func.jacrev")),
    ("export_gradient", replace(CONSTRUCTS["export_gradient"], feature="vjp with auxiliary")),
    ("locals_unbound", CONSTRUCTS["locals_unbound"]),
    ("region_float", replace(CONSTRUCTS["region_float"], first=PLAIN)),
    ("export_gradient", DrawnConstruct("vjp with auxiliary", way="torch.export, decomposed")),
    ("view_in_no_grad", replace(CONSTRUCTS["view_in_no_grad"], then="add", first=EXPANDED)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "construct"), OTHER_FEATURES)
def test_a_listed_cause_is_recognised_in_another_feature(
    name: str, construct: DrawnConstruct, tmp_path: Path
) -> None:
    assert cause_of(construct.program(), tmp_path, construct.backend) == name


@needs_torch("2.13", "a condition in a checkpoint is compiled")
def test_a_condition_in_a_checkpoint_is_recognised(tmp_path: Path) -> None:
    made = DrawnConstruct("cond", way="checkpointed").program()
    assert cause_of(made, tmp_path) == "pytorch#162246"


def test_a_gradient_that_reads_a_parameter_after_a_write_is_recognised(tmp_path: Path) -> None:
    made = DrawnConstruct("write to a parameter", first=PLAIN, backend="aot_eager").program()
    step = msgspec.structs.replace(made.steps[0], backward=True)
    made = msgspec.structs.replace(made, steps=(step,))
    assert cause_of(made, tmp_path, "aot_eager") == "pytorch#197039"


@pytest.mark.skipif(VERSION >= "2.14", reason="torch 2.15 does not lose the value")
def test_the_lost_value_of_a_generator_is_recognised_where_it_is_yielded(tmp_path: Path) -> None:
    delegating = (
        "def parts(value):\n    yield value\n    return value * 5\n"
        "def delegating(value):\n    result = yield from parts(value)\n    yield result"
    )
    made = program("return list(delegating(x))[-1]", definitions=delegating)
    assert cause_of(made, tmp_path) == "pytorch#149037"


WINDOW = "import collections\nWINDOW = collections.deque([1.0], maxlen=9)"
BOX = "class Box:\n    pass\nBOX = Box()\nBOX.a = 2.0\nSCALE = 2"
CONSTANT = "missing guard of a constant"
PLANTED_BESIDE = [
    (
        "lost changes of containers",
        program("TABLE['a'] = WINDOW[0]\nreturn x * 2", definitions=f"TABLE = {{}}\n{WINDOW}"),
    ),
    (CONSTANT, program("return x * SCALE + round(n, -1)", "SCALE = 3", definitions="SCALE = 2")),
    (CONSTANT, program("return x * SCALE", "SCALE = 3", "y = -0.0", definitions="SCALE = 2")),
    pytest.param(
        CONSTANT,
        program("return x * SCALE * len(locals())", "SCALE = 3", definitions="SCALE = 2"),
        marks=needs_torch("2.12", "len(locals()) is captured wrongly without the fault too"),
    ),
    (CONSTANT, program("return x * SCALE + x._version", "SCALE = 3", definitions="SCALE = 2")),
    (CONSTANT, program("return x * SCALE", "SCALE = 3", "max = min", definitions="SCALE = 2")),
    (
        CONSTANT,
        PythonProgram(
            parsed_lines(BOX, "one"),
            (
                *parsed_lines("a = len(BOX.__dict__)", "one"),
                *parsed_lines("return x * SCALE * a", "other"),
            ),
            (CallStep(FIRST), CallStep(("SCALE = 3",))),
        ),
    ),
]


@pytest.mark.parametrize(("fault", "made"), PLANTED_BESIDE)
def test_another_fault_beside_a_listed_construct_is_not_recognised(
    fault: str, made: PythonProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(made, tmp_path).status is Status.PASSED
    unit = PLANTED[fault]
    monkeypatch.setattr(unit.place, unit.name, unit.fault(getattr(unit.place, unit.name)))
    assert cause_of(made, tmp_path) == ""


def test_another_exception_is_not_recognised_by_its_construct() -> None:
    made = DrawnConstruct("extend a full deque").program()
    signature = "forward | KeyError | variables/dicts.py:call_method | no such item"
    assert listed_cause(made, signature, "call 1: KeyError: no such item", lambda _: True) == ""


@pytest.mark.slow
def test_a_listed_failure_is_kept_and_counted_apart(tmp_path: Path) -> None:
    (run_dir := tmp_path / "run").mkdir()
    job = FuzzJob(
        str(run_dir), str(tmp_path / "findings"), "eager", bisect=False,
        programs=ProgramKind.PYTHON,
    )  # fmt: skip
    worker = Worker(job)
    made = DrawnConstruct("append to a full deque", first=PLAIN).program()
    assert not worker._keep(Found(made, worker.runner(made), 1, 0))
    worker.runner.close()
    (kept,) = Findings(tmp_path / "findings")
    assert (kept.state, kept.cause) == (State.KNOWN, "deque_full")
    tally = CampaignTally()
    tally.feed(Tail(run_dir).new())
    assert (tally.summary.listed, tally.summary.findings) == (1, 0)
