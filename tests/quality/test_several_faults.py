"""`tcdebug bisect` finds every one of several faults, each with a repro that fails alone.

There are two and three independent faults in as many subsystems, and one fault that needs two
units. The scripts are in support/several_scripts.py. tests/benchmarks/several_faults.py measures
the cost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import LEFT, report_of
from repros_alone import alone
from several_scripts import COMPILERS, PLANTS, expected, found, script


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.parametrize("kind", PLANTS)
def test_each_of_several_faults_is_found(tmp_path: Path, backend: str, kind: str) -> None:
    (tmp_path / "script.py").write_text(script(backend, kind))
    report = report_of(tmp_path, ["script.py"])
    assert found(report) == expected(backend, kind)
    assert report["confirmed"] is True
    for fault in report["faults"]:
        assert fault["nodes"] <= LEFT
        assert alone(fault).reproduces
