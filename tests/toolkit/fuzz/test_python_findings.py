"""The strategies draw the construct of each finding, and the oracles see its failure."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tcdebug.fuzz.python.listed import LISTED, listed_cause
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.python.python_program import PythonProgram
from tests.python_findings import CONSTRUCTS, MENDED, RECENT, DrawnConstruct

SCRIPTS = Path(__file__).parents[3] / "docs" / "findings" / "python"
SAME_CAUSE = {
    "keywords_order": "dict_order", "function_attributes": "instance_dict",
    "vars_length": "instance_dict", "zero_sign": "negative_zero", "region_number": "region_float",
    "export_functionalize": "functionalize",
}  # fmt: skip
"""Findings with the cause of another one."""
VERSION = torch.torch_version.TorchVersion(torch.__version__)


def test_each_finding_has_a_construct_that_the_strategies_draw() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(CONSTRUCTS)
    for construct in CONSTRUCTS.values():
        assert construct.program().source()


def test_a_construct_with_an_unknown_mutation_is_not_generated() -> None:
    with pytest.raises(ValueError, match="no change 'levels = 1'"):
        DrawnConstruct("chain map", "levels = 1").program()


@pytest.mark.sampled
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_construct_of_a_finding_fails_and_its_cause_is_recognised(
    name: str, tmp_path: Path
) -> None:
    since = "2.15" if name in RECENT else "2.13"
    if since > VERSION:
        pytest.skip("the finding is newer than this torch")
    if name in MENDED and VERSION >= "2.14":
        pytest.skip("this torch does not have it")
    construct = CONSTRUCTS[name]
    made = construct.program()

    def judged(program: PythonProgram) -> ProgramVerdict:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return judge_python(program, construct.backend, lambda phase: None, tmp_path)

    def passes(program: PythonProgram) -> bool:
        return judged(program).status is Status.PASSED

    verdict = judged(made)
    assert verdict.status is Status.FAILED
    cause = SAME_CAUSE.get(name, name)
    known = cause in {listed.name for listed in LISTED}
    assert listed_cause(made, verdict.signature, verdict.message, passes) == cause * known
