"""One table of formats for the results of bisect, minify and explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tcdebug.cli.main import cli
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    StageDiff,
)
from tcdebug.minifier.repros.verify import python_command
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_explanation, of_report, of_run
from tcdebug.reading.breaks import Break
from tcdebug.reading.explanation import BreakCost, Explanation

FAILURE = ReportedFailure("wrong", "wrong | 0", "backward", "off by 0.5")


def report(**more: Any) -> Report:
    """A bisection that found a fault."""
    here = Path.cwd()
    fault = ReportedFault(
        FAILURE, [Culprit("fuse.vertical", "a+b", "s-1", 3)], repro=f"{here}/run/repro.py",
        nodes=2, lines=[f"{here}/model.py:12 in f: y = x + 1"], stages=StageDiff("schedule", ""),
    )  # fmt: skip
    return Report("confirmed", FAILURE, faults=[fault], reruns=9, seconds=1.5, **more)


def explanation() -> Explanation:
    """A script with a break."""
    broken = Break("cannot trace print", "/me/model.py:5", "It prints.", ["Do not."], "gb0059", "")
    return Explanation(
        "run", "script.py", 0, 2.0, 1.0, [], [BreakCost(broken, "print(1)", 3, 0.4)], [], [], 0, 0,
        [], [], ["ValueError: no"],
    )  # fmt: skip


WRONG = {"failure": "wrong", "signature": "wrong | 0", "direction": "forward", "message": "by 0.5"}
MISSING = {
    "frame": "fn (model.py:8)", "call": 2, "where": "result", "detail": "9.0 instead of 18.0",
    "changed": ["n: 1 -> 2"], "line": "model.py:9: return n * x",
}  # fmt: skip
RECORDS = [
    {"event": "failure", "pid": 7, "data": WRONG},
    {"event": "repro.write", "pid": 7, "data": {"path": "run/0/repro.py"}},
    {"event": "guard.missing", "pid": 7, "data": MISSING},
]


def test_failures_of_a_run_and_graphs_in_which_it_ended_are_results() -> None:
    repros = [Path("run/0/repro.py"), Path("run/1/repro.py")]
    results, heading = of_run(RECORDS, repros, "train.py", 139)
    assert FORMATS["concise"](results, heading).splitlines() == [
        "exit status 139; failing graphs: 2; missing guards: 1",
        f"wrong in forward: {python_command()} run/0/repro.py",
        f"crash in this graph: {python_command()} run/1/repro.py",
        "model.py:9: missing guard in fn (model.py:8)",
    ]
    assert [(r.path, r.message) for r in results] == [
        ("train.py", "by 0.5"),
        ("train.py", "the process ended while this graph compiled or ran"),
        ("model.py", "result: 9.0 instead of 18.0"),
    ]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--output-format", "sarif"], "--output-format needs -o FILE"),
        (["--profile", "-o", "f.txt"], "-o and --output-format are for failures"),
        (["--json"], "--json needs --profile"),
    ],
)
def test_an_output_of_run_that_has_no_place_is_a_usage_error(flags: list[str], why: str) -> None:
    done = CliRunner().invoke(cli, ["run", *flags, __file__])
    assert (done.exit_code, why in done.output) == (2, True)


def test_a_fault_is_reported_at_the_users_line() -> None:
    results, heading = of_report(report(), "tcdebug bisect")
    assert FORMATS["concise"](results, heading).splitlines() == [
        "confirmed: 1 faults, 9 runs",
        f"model.py:12: wrong in backward: fuse.vertical at a+b: {python_command()} run/repro.py",
    ]
    assert FORMATS["github"](results, heading).splitlines()[0] == (
        "::error file=model.py,line=12,title=wrong in backward%3A fuse.vertical at a+b::off by 0.5"
    )
    (run,) = json.loads(FORMATS["sarif"](results, heading))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "model.py"}, "region": {"startLine": 12}}
    assert "- stage: schedule" in FORMATS["markdown"](results, heading)


def test_a_failure_without_a_culprit_is_reported_and_a_healthy_run_is_not() -> None:
    plain = Report("unconfirmed", FAILURE, repro="r.py")
    assert [r.title for r in of_report(plain, "x")[0]] == ["wrong in backward"]
    assert of_report(Report("no_failure"), "x")[0] == []


def test_a_graph_break_is_a_warning_with_the_id_that_torch_gave_it() -> None:
    results, heading = of_explanation(explanation())
    assert [(r.rule, r.level, r.path, r.line) for r in results] == [
        ("gb0059", "warning", "/me/model.py", 5), ("failure", "error", "", 0),
    ]  # fmt: skip
    lines = FORMATS["github"](results, heading).splitlines()
    assert lines[0] == (
        "::warning file=/me/model.py,line=5,title=graph break%3A cannot trace print::"
        "It prints.%0ADo not."
    )
    assert lines[-1] == "::notice::0 graphs, 1 graph breaks, 0 recompiles; compiling 1.0 s of 2.0 s"


@pytest.mark.parametrize(
    ("words", "style"),
    [([], "full"), (["--json"], "json"), (["--output-format", "sarif"], "sarif")],
)
def test_json_is_short_for_a_format(
    words: list[str], style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    for name in ("explain", "bisect", "minify"):
        command = cli.commands[name]
        monkeypatch.setattr(command, "callback", given.update)
        done = CliRunner().invoke(cli, [name, *words, __file__])
        assert (done.exit_code, given["style"]) == (0, style), name
