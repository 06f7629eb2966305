"""The strategies draw the construct of each finding, and the oracles see its failure."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tests.python_findings import CONSTRUCTS, MENDED, RECENT, DrawnConstruct

SCRIPTS = Path(__file__).parents[3] / "docs" / "findings" / "python"
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
def test_the_construct_of_a_finding_fails(name: str, tmp_path: Path) -> None:
    since = "2.15" if name in RECENT else "2.13"
    if since > VERSION:
        pytest.skip("the finding is newer than this torch")
    if name in MENDED and VERSION >= "2.14":
        pytest.skip("this torch does not have it")
    construct = CONSTRUCTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = judge_python(construct.program(), construct.backend, lambda phase: None, tmp_path)
    assert verdict.status is Status.FAILED
