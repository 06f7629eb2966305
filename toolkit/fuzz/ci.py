"""What continuous integration is told: text, annotations, SARIF, JUnit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tcdebug import __version__
from tcdebug.fuzz.findings import PROGRAM, Finding

Numbers = Mapping[str, Any]
Format = Callable[[Sequence[Finding], Numbers, Path], str]

MOST_ANNOTATIONS = 8
"""GitHub shows ten errors of a step, and some are others'."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class Mode:
    """How long a job of continuous integration fuzzes, and whether it goes on from earlier ones."""

    seconds: float
    seed: int | None
    """None for another one each time."""
    database: bool
    bisect: bool


MODES = {
    "code-change": Mode(120.0, 0, database=False, bisect=False),
    "batch": Mode(3600.0, None, database=True, bisect=True),
}


def _place(finding: Finding, folder: Path) -> str:
    return str(folder / finding.slug / (finding.repro or PROGRAM))


def _title(finding: Finding) -> str:
    return f"{finding.signature} ({' '.join(finding.ops)})"


def as_text(findings: Sequence[Finding], numbers: Numbers, folder: Path) -> str:
    """A line a finding, after one of numbers."""
    valid, count = numbers["valid"], numbers["examples"]
    lines = [f"{count} programs, {valid:.1%} valid, {len(findings)} new findings"]
    lines += [f"{_title(f)}: python {_place(f, folder)}" for f in findings]
    return "\n".join(lines) + "\n"


def as_annotations(findings: Sequence[Finding], numbers: Numbers, folder: Path) -> str:
    """Workflow commands of GitHub: an error a finding, and what is left out as a notice."""
    lines = [
        f"::error file={_property(_place(f, folder))},title={_property(_title(f))}::"
        f"{_data(f.message or f.signature)}"
        for f in findings[:MOST_ANNOTATIONS]
    ]
    more = len(findings) - MOST_ANNOTATIONS
    if more > 0:
        lines.append(f"::notice::{more} more findings in {_data(str(folder))}")
    lines.append(f"::notice::{numbers['examples']} programs, {len(findings)} new findings")
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Sequence[Finding], numbers: Numbers, folder: Path) -> str:
    """SARIF 2.1.0: a rule a failure signature, a result a finding."""
    rules = [
        {"id": f.slug, "shortDescription": {"text": _title(f)}, "name": f.kind} for f in findings
    ]
    shown = [
        {
            "ruleId": f.slug,
            "level": "error",
            "message": {"text": f.message or f.signature},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": _place(f, folder)}}}
            ],
            "partialFingerprints": {"signature": f.identity},
        }
        for f in findings
    ]
    driver = {"name": "tcdebug fuzz", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": shown, "properties": dict(numbers)}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def as_junit(findings: Sequence[Finding], numbers: Numbers, folder: Path) -> str:
    """JUnit: a test case for the campaign, and one that fails for each finding."""
    suite = ElementTree.Element(
        "testsuite", name="tcdebug fuzz", tests=str(len(findings) + 1),
        failures=str(len(findings)), time=str(numbers["seconds"]),
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, number in numbers.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(number))
    ElementTree.SubElement(suite, "testcase", classname="tcdebug.fuzz", name="campaign")
    for finding in findings:
        case = ElementTree.SubElement(
            suite, "testcase", classname="tcdebug.fuzz", name=_title(finding)
        )
        failure = ElementTree.SubElement(
            case, "failure", type=finding.kind, message=_printable(finding.message)
        )
        failure.text = f"python {_place(finding, folder)}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """XML has no control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


FORMATS: Mapping[str, Format] = {
    "text": as_text,
    "github": as_annotations,
    "sarif": as_sarif,
    "junit": as_junit,
}
"""Name -> what writes the findings so."""
