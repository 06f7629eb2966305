"""The printed report about the stage that introduces a fault."""

from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tcdebug.compiler.events.run_folder import RunInfo
from tcdebug.display.report import show_report
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    ReportedRung,
    ReportedScript,
    StageDiff,
)
from tcdebug.output.issue import issue
from tcdebug.reading.run_dir import Run

FX = [
    "@@ -3,2 +3,5 @@",
    "         mul = torch.ops.aten.mul.Tensor(arg0_1, 0.5)",
    "-        erf = torch.ops.aten.erf.default(mul)",
    "+",
    "+        # No stacktrace found for following nodes",
    "+        erf = torch.ops.aten.tanh.default(mul)",
]
IR = [
    "-op0: ExternKernelSchedulerNode(FallbackKernel)",
    "-op0.writes = [StarDep(name='buf0', mode=None)]",
    "-op0.node.kernel = torch.ops.aten.tanh.default",
    "+op0: SchedulerNode(ComputedBuffer)",
    "+buf0_layout = FixedLayout('cpu', torch.float32, size=[1], stride=[1])",
    "+        sin = ops.sin(load)",
]


@pytest.mark.parametrize(
    ("stages", "lines"),
    [
        (
            StageDiff("passes.fast (forward)", "aot (forward)", "", "fast.diff", FX),
            [
                "  stage    passes.fast (forward); equal up to aot (forward)",
                "           - erf = torch.ops.aten.erf.default(mul)",
                "           + erf = torch.ops.aten.tanh.default(mul)",
                "  diff     fast.diff",
            ],
        ),
        (
            StageDiff("ir_pre_fusion", "inductor_post_grad_graph", "", "ir.diff", IR),
            [
                "  stage    ir_pre_fusion; equal up to inductor_post_grad_graph",
                "           - op0: ExternKernelSchedulerNode(FallbackKernel)",
                "           - op0.node.kernel = torch.ops.aten.tanh.default",
                "           + op0: SchedulerNode(ComputedBuffer)",
                "           +         sin = ops.sin(load)",
                "  diff     ir.diff",
            ],
        ),
        (
            StageDiff("aot", "", "lower", "aot.diff", ["-a", "+b"]),
            [
                "  stage    aot; the first stage",
                "           the failing compile ended before lower",
                "           - a",
                "           + b",
                "  diff     aot.diff",
            ],
        ),
        (
            StageDiff("", "passes", ended_before="lower"),
            ["  stage    the failing compile ended before lower; equal up to passes"],
        ),
        (
            StageDiff("", "runtime"),
            ["  stage    no stage differs; equal up to runtime"],
        ),
        (None, []),
    ],
)
def test_the_stage_of_a_fault_is_shown(
    stages: StageDiff | None, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    screen = io.StringIO()
    fault = ReportedFault(ReportedFailure("wrong", "forward | wrong value"), stages=stages)
    show_report(Report("confirmed", faults=[fault]), Console(file=screen, width=200))
    shown = screen.getvalue().splitlines()
    assert shown == ["found and confirmed both ways", "  failure  wrong in forward: ", *lines]


def test_every_row_of_a_report_is_explained_in_the_documentation(tmp_path: Path) -> None:
    small = tmp_path / "short.py"
    small.write_text("import torch\n")
    failure = ReportedFailure("wrong", "forward | wrong value")
    fault = ReportedFault(
        failure, [Culprit("passes.cse", "mul_1", "a1b2c3", 4)], ["wrong strides"], ["lower.a"],
        ["lower.b"], [["lower.c", "lower.d"]], ["lower.e"], ["lower.f"], confirmed=True,
        repro="run/repro.py", short="run/short.py", fails="python repro.py",
        only_fails="python repro.py --only=passes.cse", passes="python repro.py --off=passes.cse",
        lines=["model.py:1 in f: x"], stages=StageDiff("aot", "", path="aot.diff"),
    )  # fmt: skip
    suspected = msgspec.structs.replace(fault, confirmed=False)
    report = Report(
        "confirmed", faults=[fault, suspected], nodes_before=9, nodes_after=1, notes=["a note"],
        reruns=3, run_dir="run", others={"forward | nan": "other/0/repro.py"},
        ladder=[ReportedRung("in eager", "ok")],
        script=ReportedScript(str(small), 90, 1, 120, 61.0, 33.0),
    )  # fmt: skip
    screen = io.StringIO()
    show_report(report, Console(file=screen, width=200))
    shown = re.findall(r"^  (\w.{7}) ", screen.getvalue(), re.MULTILINE)
    page = Path(__file__).parents[2] / "docs" / "bisecting.md"
    _, _, section = page.read_text().partition("\n## The report\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {name.strip() for name in shown} == explained


@pytest.mark.parametrize(
    ("culprit", "line"),
    [
        (
            Culprit("passes.cse", "mul_1", "a1b2c3", 4),
            "  culprit  passes.cse at mul_1 (site a1b2c3, decision 4)",
        ),
        (
            Culprit("passes.cse", "passes.cse", "a1b2c3", 4),
            "  culprit  passes.cse (site a1b2c3, decision 4)",
        ),
        (
            Culprit("layer.dynamo.guards", "layer.dynamo.guards", "", 0),
            "  culprit  layer.dynamo.guards",
        ),
    ],
)
def test_a_culprit_that_is_one_decision_is_shown_with_its_site(culprit: Culprit, line: str) -> None:
    screen = io.StringIO()
    failure = ReportedFailure("wrong", "forward | wrong value")
    fault = ReportedFault(failure, [culprit], confirmed=True)
    show_report(Report("confirmed", faults=[fault]), Console(file=screen, width=200))
    assert screen.getvalue().splitlines()[-1] == line


def test_a_unit_that_is_not_confirmed_is_a_suspect() -> None:
    screen = io.StringIO()
    found = [Culprit("passes.cse", "mul_1", "a1b2c3", 4)]
    fault = ReportedFault(ReportedFailure("wrong", "forward | wrong value"), found)
    show_report(Report("unconfirmed", faults=[fault]), Console(file=screen, width=200))
    last = screen.getvalue().splitlines()[-1]
    assert last == "  suspect  passes.cse at mul_1 (site a1b2c3, decision 4)"


def test_a_script_made_small_is_printed_and_pasted_into_the_bug_report(tmp_path: Path) -> None:
    short, repro = tmp_path / "short.py", tmp_path / "repro.py"
    short.write_text("import torch\nassert [1, 2] == torch.compile(f)(x)  # [small]\n")
    repro.write_text("the judge")
    failure = ReportedFailure("exception", "script | AssertionError", "script", "AssertionError: 1")
    fault = ReportedFault(failure, repro=str(repro), short=str(short), fails="python repro.py")
    small = ReportedScript(str(short), 90, 2, 120, 61.0, 33.0)
    report = Report("confirmed", failure, faults=[fault], repro=str(repro), script=small)
    screen = io.StringIO()
    show_report(report, Console(file=screen, width=200))
    shown = screen.getvalue()
    assert "  script   90 -> 2 lines (120 runs, 61 s)" in shown
    assert shown.endswith(f"\n\n{''.join(f'  {line}' for line in short.open())}")

    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report))
    run = Run(tmp_path, RunInfo("one", "bisect", [], ".", 1, 0.0, 0))
    text = issue(run)
    assert "this script behaves differently from eager: **exception in script**" in text
    assert "The script was minimised from 90 to 2 lines." in text
    assert f"```python\n{short.read_text()}```" in text and "the judge" not in text


def test_runs_with_less_of_torch_are_grouped_by_their_outcome() -> None:
    ladder = [
        ReportedRung("in eager", "ok", ["layer.dynamo"]),
        ReportedRung("eager", "ok", ["layer.autograd"]),
        ReportedRung("with all caches off", "exception", ["layer.cache"]),
    ]
    screen = io.StringIO()
    show_report(Report("unconfirmed", ladder=ladder), Console(file=screen, width=200))
    assert (
        "  runs     passes in eager and with the backend eager; "
        "fails (exception) with all caches off\n"
    ) in screen.getvalue()
