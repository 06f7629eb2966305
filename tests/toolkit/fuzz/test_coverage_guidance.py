"""Coverage-guided fuzzing: lines of torch are recorded, and decide what is drawn."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData

from tcdebug.fuzz.python.guidance import LEAST, MOST, Guidance, power_schedule
from tcdebug.fuzz.python.line_coverage import TORCH, LineCoverage, cannot_record, file_of_torch
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.python.python_programs import feature_names
from tcdebug.strategies.python.weighted import WeightedOptions
from tests.support.drawn_programs import drawn

OLD = sys.version_info < (3, 12)
RECORDS = pytest.mark.skipif(OLD, reason="sys.monitoring is in Python 3.12 and later")
GAINS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e6), max_size=6)


def reaching(lines: dict[str, tuple[int, ...]]) -> ProgramVerdict:
    """The verdict on a program that passes and runs these lines for the first time."""
    return ProgramVerdict(Status.PASSED, lines=lines)


def test_what_reaches_more_new_lines_is_drawn_more_often_within_limits() -> None:
    gains = {"none": 0.0, "few": 5.0, "usual": 10.0, "most": 5000.0}
    assert power_schedule(gains, (*gains, "never drawn")) == {
        "none": LEAST, "few": 0.5, "usual": 1.0, "most": MOST, "never drawn": MOST,
    }  # fmt: skip


@given(GAINS)
def test_weights_are_within_limits_follow_the_gains_and_prefer_nothing_to_the_new(
    gains: dict[str, float],
) -> None:
    weights = power_schedule(gains, "abcdefg")
    assert weights.keys() == set("abcdefg")
    assert all(LEAST <= weight <= MOST for weight in weights.values())
    assert weights["g"] == MOST
    by_gain = sorted(gains, key=gains.__getitem__)
    assert [weights[name] for name in by_gain] == sorted(weights[name] for name in by_gain)


def test_features_are_credited_only_with_lines_that_no_earlier_program_has_run() -> None:
    guidance = Guidance(("loop", "closure", "hook"))
    first = guidance.counted(reaching({"_dynamo/a.py": (1, 2, 3, 4)}))
    guidance.learn(("loop",), first)
    second = guidance.counted(reaching({"_dynamo/a.py": (4, 5), "_inductor/b.py": (4,)}))
    guidance.learn(("loop", "closure"), second)
    assert (first.reached, second.reached) == (4, 2)
    assert (first.lines, second.lines) == ({}, {})
    assert guidance.coverage.count == 6
    assert guidance.gains == {"loop": 3.0, "closure": 2.0}
    guidance.learn(("loop",), guidance.counted(reaching({"_dynamo/a.py": (1, 2)})))
    assert guidance.gains == {"loop": 1.5, "closure": 2.0}
    assert guidance.weights() == {"loop": 1.5 / 1.75, "closure": 2.0 / 1.75, "hook": MOST}


def test_an_example_of_the_database_means_the_same_with_any_weights() -> None:
    options = tuple("abcde")
    for place, option in enumerate(options):
        for strategy in (
            st.sampled_from(options),
            WeightedOptions(options, (1.0, 2.0, 3.0, 4.0, 5.0)),
        ):
            data = ConjectureData.for_choices((place,))
            assert data.draw(strategy) == option


def test_a_feature_with_a_large_weight_is_drawn_more_often_and_others_still_are() -> None:
    names = feature_names()
    preferred = names[0]
    weights = {name: MOST if name == preferred else LEAST for name in names}
    even, guided = (Counter(op for p in drawn(100, 3, w) for op in p.ops) for w in ({}, weights))
    assert guided[preferred] >= 4 * max(even[preferred], 1)
    assert len(guided) >= 60


def test_only_files_of_the_recorded_packages_count() -> None:
    dynamo = str(TORCH / "_dynamo" / "guards.py")
    assert file_of_torch(dynamo) == "_dynamo/guards.py"
    assert file_of_torch(str(TORCH / "nn" / "modules" / "module.py")) == ""
    assert file_of_torch("<eval_with_key>.1") == ""
    assert file_of_torch(__file__) == ""


@RECORDS
def test_a_line_is_recorded_once_and_only_in_torch() -> None:
    registry = "_dynamo/backends/registry.py"
    torch._dynamo.list_backends()  # it imports modules, whose lines run once
    coverage = LineCoverage()
    coverage.start()
    try:
        torch._dynamo.list_backends()
        first = coverage.new()
        torch._dynamo.list_backends()
        again = coverage.new()
    finally:
        coverage.stop()
    assert len(first[registry]) == len({*first[registry]}) >= 3
    assert coverage.count == sum(map(len, first.values()))
    assert "nn/modules/module.py" not in first
    assert again == {}
    assert cannot_record() == ""


@RECORDS
def test_a_line_known_from_another_process_is_not_reported() -> None:
    coverage = LineCoverage()
    coverage.start()
    torch._dynamo.list_backends()
    coverage.stop()
    known = coverage.new()
    other = LineCoverage()
    other.add(known)
    other.start()
    torch._dynamo.list_backends()
    other.stop()
    assert other.new() == {}


@RECORDS
def test_a_guided_campaign_reports_the_new_lines_of_each_program(
    tcdebug: Any, tmp_path: Path
) -> None:
    done = tcdebug(
        "fuzz", "run", "--programs=python", "--backend=eager", "--coverage-guided", "--examples=30",
        "--seed=1", "--no-bisect", "--stop-after=1", "-q", "--json",
    )  # fmt: skip
    assert done.status in (0, 1), done.stderr
    events = [
        json.loads(line)
        for path in (tmp_path / ".tcdebug").glob("2*/events*.jsonl")
        for line in path.read_text().splitlines()
    ]
    lines = [e["data"]["lines"] for e in events if e["event"] == "fuzz.case"]
    assert lines[0] > 1000 and lines[0] == max(lines)
    assert done.json["lines"] == sum(lines) > 1000


@pytest.mark.skipif(not OLD, reason="sys.monitoring is in Python 3.12 and later")
def test_on_python_3_11_guidance_is_refused_with_the_reason(tcdebug: Any) -> None:
    done = tcdebug("fuzz", "run", "--programs=python", "--backend=eager", "--coverage-guided", "-q")
    assert done.status == 2
    assert "coverage-guided fuzzing needs Python 3.12" in done.stderr


def test_graphs_are_not_guided_by_coverage(tcdebug: Any) -> None:
    done = tcdebug("fuzz", "run", "--coverage-guided", "-q")
    assert done.status == 2
    assert "--coverage-guided needs --programs python" in done.stderr
