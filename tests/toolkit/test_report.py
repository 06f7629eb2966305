"""The printed report about the stage that introduces a fault."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tcdebug.display.report import show_report
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    StageDiff,
)

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
            Culprit("layer.dynamo.guards", "train.py", "", 0),
            "  culprit  layer.dynamo.guards at train.py",
        ),
    ],
)
def test_a_culprit_is_shown_with_its_place_where_it_is_a_single_decision(
    culprit: Culprit, line: str
) -> None:
    screen = io.StringIO()
    fault = ReportedFault(ReportedFailure("wrong", "forward | wrong value"), [culprit])
    show_report(Report("confirmed", faults=[fault]), Console(file=screen, width=200))
    assert screen.getvalue().splitlines()[-1] == line
