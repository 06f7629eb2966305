"""Results for programs: CI, code scanning, test reports, comments.

A command gives its findings as `Result`s under a `Heading`. The table FORMATS writes them in every
format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from xml.etree import ElementTree

from tcdebug import __version__

MOST_ANNOTATIONS = 8
"""GitHub shows ten errors per step, and other tools need some of them."""
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class Heading:
    """The command, a one-line summary, the folder with details, and statistics."""

    tool: str
    summary: str
    folder: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A finding. `rule` is its kind of cause; `identity` is the same in every run.

    `line` is 0 if the finding concerns a whole file. `command` reproduces it. `details` are pairs
    of name and text.
    """

    rule: str
    kind: str
    title: str
    message: str
    path: str
    line: int = 0
    level: str = "error"
    command: str = ""
    identity: str = ""
    details: tuple[tuple[str, str], ...] = ()


Format = Callable[[Sequence[Result], Heading], str]


def concise(found: Sequence[Result], heading: Heading) -> str:
    """Return the summary, then one line per result, as compilers write them."""
    lines = [heading.summary]
    for r in found:
        place = f"{r.path}:{r.line}: " if r.line else ""
        lines.append(f"{place}{r.title}" + (f": {r.command}" if r.command else ""))
    return "\n".join(lines) + "\n"


def json_lines(found: Sequence[Result], heading: Heading) -> str:
    """Return one JSON object per line and result."""
    return "".join(json.dumps({**asdict(r), "details": dict(r.details)}) + "\n" for r in found)


def github(found: Sequence[Result], heading: Heading) -> str:
    """Return GitHub workflow commands: annotations, and a notice about omitted results."""
    lines = [
        f"::{r.level} file={_property(r.path)}{f',line={r.line}' if r.line else ''}"
        f",title={_property(r.title)}::{_data(r.message)}"
        for r in found[:MOST_ANNOTATIONS]
    ]
    more = len(found) - MOST_ANNOTATIONS
    if more > 0:
        where = f" in {_data(heading.folder)}" if heading.folder else ""
        lines.append(f"::notice::{more} more findings{where}")
    lines.append(f"::notice::{_data(heading.summary)}")
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(found: Sequence[Result], heading: Heading) -> str:
    """Return SARIF 2.1.0, for code scanning."""
    rules = {
        r.rule: {"id": r.rule, "shortDescription": {"text": r.title}, "name": r.kind} for r in found
    }
    shown = [
        {
            "ruleId": r.rule,
            "level": r.level,
            "message": {"text": r.message},
            "locations": [{"physicalLocation": _location(r)}],
            "partialFingerprints": {"signature": r.identity},
        }
        for r in found
    ]
    driver = {"name": heading.tool, "version": __version__, "rules": [*rules.values()]}
    run = {"tool": {"driver": driver}, "results": shown, "properties": dict(heading.numbers)}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _location(result: Result) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": result.path}}
    return {**place, "region": {"startLine": result.line}} if result.line else place


def junit(found: Sequence[Result], heading: Heading) -> str:
    """Return JUnit XML: one test case for the whole, and one failing test case per result."""
    suite = ElementTree.Element(
        "testsuite", name=heading.tool, tests=str(len(found) + 1), failures=str(len(found)),
        time=str(heading.numbers.get("seconds", 0)),
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, number in heading.numbers.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(number))
    group = heading.tool.replace(" ", ".")
    ElementTree.SubElement(suite, "testcase", classname=group, name="campaign")
    for r in found:
        case = ElementTree.SubElement(suite, "testcase", classname=group, name=_printable(r.title))
        failure = ElementTree.SubElement(
            case, "failure", type=r.kind, message=_printable(r.message)
        )
        failure.text = _printable(r.command or r.path)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Return the text without control characters, which XML forbids."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def markdown(found: Sequence[Result], heading: Heading) -> str:
    """Return a comment on a pull request, or a job summary."""
    lines = [f"### {heading.tool}", "", _plain(heading.summary)]
    for r in found:
        place = f" `{r.path}{f':{r.line}' if r.line else ''}`" if r.path else ""
        lines += ["", f"**{_plain(r.title)}**{place}", "", _fenced(r.message)]
        lines += ["", *(f"- {name}: {_plain(text)}" for name, text in r.details if text)]
        lines += [f"- `{r.command}`"] if r.command else []
    return "\n".join(lines).rstrip() + "\n"


def _plain(text: str) -> str:
    """Return one line with Markdown and HTML characters escaped."""
    line = " ".join(text.split()).replace("\\", "\\\\")
    for mark in "`*_[]<>#|":
        line = line.replace(mark, f"\\{mark}")
    return line


def _fenced(text: str) -> str:
    """Return a code block that its own text cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{_printable(text)}\n{fence}"


FORMATS: Mapping[str, Format] = {
    "concise": concise,
    "json-lines": json_lines,
    "github": github,
    "sarif": sarif,
    "junit": junit,
    "markdown": markdown,
}
"""Writers of results by name. Commands also have `full` and `json`, which contain more."""
