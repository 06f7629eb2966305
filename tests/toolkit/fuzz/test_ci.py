"""The output about findings for CI, in each format."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tcdebug.fuzz import ci
from tcdebug.fuzz.findings import Finding
from tcdebug.output.formats import FORMATS
from tcdebug.output.structures import CampaignSummary
from tcdebug.strategies.program import Program, ProgramStep

NUMBERS = CampaignSummary(
    examples=60, passed=60, failed=0, known=0, discarded=0, invalid=0, valid=1.0,
    programs_per_second=24.0, second_calls=9, operations=8, pairs=7, fused_pairs=6, findings=0,
    not_reproduced=0, listed=0, seconds=2.5,
)  # fmt: skip


def findings(count: int) -> list[Finding]:
    """Findings with this many signatures."""
    program = Program((), (ProgramStep("v0", "torch.ones(2).sum()", "sum"),), ("v0",))
    return [
        Finding(f"compile | lower | E{k}", "exception", "tcdebug", "50%: a,\x00b\nc", program, "2",
                ops=("sum",))
        for k in range(count)
    ]  # fmt: skip


def written(style: str, count: int = 1) -> str:
    """The text about this many findings."""
    return ci.written(style, findings(count), NUMBERS, Path("kept"))


def test_the_concise_format_has_a_line_for_each_finding() -> None:
    lines = written("concise", 2).splitlines()
    assert lines[0] == "60 programs, 100.0% valid, 2 new findings"
    assert lines[1].startswith("compile | lower | E0 (sum): python kept/compile-lower-e0-sum-")


def test_annotations_are_escaped_and_at_most_eight() -> None:
    lines = written("github", 10).splitlines()
    assert sum(line.startswith("::error ") for line in lines) == 8
    assert lines[0].endswith("::50%25: a,\x00b%0Ac")
    assert lines[8] == "::notice::2 more findings in kept"


def test_sarif_has_a_rule_and_a_result_for_each_finding() -> None:
    (run,) = json.loads(written("sarif", 2))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [result["ruleId"] for result in run["results"]] == rules
    assert run["results"][0]["partialFingerprints"] == {"signature": "compile | lower | E0"}


def test_junit_can_be_read_and_has_a_failure_for_each_finding() -> None:
    suite = ElementTree.fromstring(written("junit", 2))
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", "2")
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.attrib["message"].startswith("50%: a, b")


def test_code_cannot_break_out_of_its_markdown_block() -> None:
    text = written("markdown")
    assert text.startswith("### tcdebug fuzz\n\n60 programs, 100.0% valid, 1 new findings\n")
    assert "**compile \\| lower \\| E0 (sum)**" in text
    assert "```text\n50%: a, b\nc\n```" in text


def test_each_line_of_json_is_one_finding() -> None:
    lines = written("json-lines", 2).splitlines()
    assert [json.loads(line)["identity"] for line in lines] == [
        "compile | lower | E0", "compile | lower | E1",
    ]  # fmt: skip


@pytest.mark.parametrize("style", [style for style in FORMATS if style != "json-lines"])
def test_every_output_format_can_express_no_findings(style: str) -> None:
    assert written(style, 0)
