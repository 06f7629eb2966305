"""Each feature and way of these tables is drawn, works as it is, and shows a planted fault."""

from __future__ import annotations

import warnings
from pathlib import Path

import msgspec
import pytest

from tcdebug.fuzz.python.execution import Execution
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tcdebug.strategies.python.features.iteration import ITERATION
from tcdebug.strategies.python.features.language import LANGUAGE
from tcdebug.strategies.python.features.modules import MODULES
from tcdebug.strategies.python.features.objects import OBJECTS
from tcdebug.strategies.python.features.regions import FURTHER_HIGHER_ORDER, REGIONS
from tcdebug.strategies.python.features.standard_library import STANDARD_LIBRARY
from tcdebug.strategies.python.features.training import TRAINING
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.python_programs import feature_names
from tcdebug.strategies.python.ways import OF_BACKEND
from tests.planted_in_features import LEAF, PLANTED_IN_FEATURES
from tests.python_findings import DrawnConstruct

FEATURES = (
    *ITERATION, *LANGUAGE, *MODULES, *OBJECTS, *REGIONS, *FURTHER_HIGHER_ORDER, *STANDARD_LIBRARY,
    *TRAINING,
)  # fmt: skip


def judged(made: PythonProgram, folder: Path, backend: str) -> Status:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, backend, lambda phase: None, folder).status


@pytest.mark.sampled
@pytest.mark.parametrize("name", PLANTED_IN_FEATURES)
def test_a_fault_in_compiled_code_is_detected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = PLANTED_IN_FEATURES[name]
    assert name in (*feature_names(), *OF_BACKEND["aot_eager_decomp_partition"])
    assert judged(fault.program, tmp_path, fault.backend) is Status.PASSED
    monkeypatch.setattr(fault.place, fault.name, fault.fault(getattr(fault.place, fault.name)))
    assert judged(fault.program, tmp_path, fault.backend) is Status.FAILED


def test_eager_accepts_each_feature_with_gradients(tmp_path: Path) -> None:
    for name in [feature.name for feature in FEATURES]:
        made = DrawnConstruct(name, first=LEAF).program()
        steps = tuple(msgspec.structs.replace(step, backward=True) for step in made.steps)
        made = msgspec.structs.replace(made, steps=steps)
        states = Execution(made, tmp_path / "p.py", lambda f: f).states()
        assert [state.error for state in states] == [None, None], name
