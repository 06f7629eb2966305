"""Where a fault appears, stage by stage, for planted bugs in both compilers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import StageText
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.investigation.report import StageDiff
from tcdebug.minifier.investigation.stages import find_stage, first_difference, read_stages
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.targets.backends import Backend

sys.path.insert(0, str(Path(__file__).parents[2]))
import planted
import planted_inductor


def over_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1


def centred(x: torch.Tensor) -> torch.Tensor:
    return x - torch.tanh(x).mean(-1, keepdim=True)


def softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(x)


@dataclass(frozen=True)
class Row:
    """A planted bug, and the stage where it appears."""

    unit: str
    function: Callable[[torch.Tensor], torch.Tensor]
    stage: str
    last_equal: str
    line: str
    """The start of a line that the stage has only with the bug."""
    gradient: bool = False


EMBEDDED = [
    Row(
        "passes.algebraic",
        shifted,
        "passes.algebraic (inference)",
        "passes.redundant_views (inference)",
        '+    add: "f32[16, 16]" = torch.ops.aten.add.Tensor(arg0_1, 1)',
    ),
    Row(
        "decompose.aten.tanh_backward.default",
        over_tanh,
        "aot (backward)",
        "runtime (forward)",
        '+    mul_2: "f32[16, 16]" = torch.ops.aten.mul.Tensor(mul_1, 1.5)',
        gradient=True,
    ),
    Row(
        "lower.aten.tanh.default",
        over_tanh,
        "lower (inference)",
        "passes (inference)",
        "+    t2 = constant(float32, 1.5)",
    ),
    Row(
        "fuse.inline",
        shifted,
        "inline (inference)",
        "lower (inference)",
        "+    t2 = constant(float32, 1.5)",
    ),
    Row(
        "fuse.reduction",
        centred,
        "schedule (inference)",
        "inline (inference)",
        "+        t2 = constant(float32, 1.5)",
    ),
    Row(
        "codegen.vectorize",
        over_tanh,
        "kernels (inference)",
        "codegen (inference)",
        "+    const float t1 = 1.5f * tanh_(t0);",
    ),
]


@cache
def warm_up(target: str) -> None:
    """Set up once what all candidates of a backend need."""
    Backend(target, target).warm_up(EventLog(None))


def compared(
    target: str, row: Row, folder: Path, plant: Callable[[], None], seconds: float = 120
) -> tuple[StageDiff | None, Oracle]:
    """Compare stages in children that have the bug planted."""
    log = EventLog(folder)
    backend = Backend(target, target, run_dir=str(folder))
    warm_up(target)
    subject = GraphSubject(backend, log, prepare=plant)
    oracle = graph_oracle(subject, Limits(seconds), Budget())
    case = captured(row.function, torch.randn(16, 16, requires_grad=row.gradient))
    return find_stage(oracle, case, Toggles(), [row.unit], folder / "stages" / "1"), oracle


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable events, from which stages are read."""
    monkeypatch.delenv("TCDEBUG_LOG")


@pytest.mark.parametrize("row", EMBEDDED, ids=lambda row: row.unit)
def test_a_wrong_unit_of_the_embedded_compiler_appears_at_its_stage(
    row: Row, tmp_path: Path
) -> None:
    found, oracle = compared("tcdebug", row, tmp_path, lambda: planted.PLANTS[row.unit]("wrong"))
    assert found is not None
    assert (found.stage, found.last_equal, found.ended_before) == (row.stage, row.last_equal, "")
    assert row.line in "\n".join(found.lines)
    assert found.path == str(tmp_path / "stages" / "1" / f"{row.stage.partition(' ')[0]}.diff")
    assert Path(found.path).read_text().startswith("--- good\n+++ bad\n@@ ")
    assert oracle.asked == 2


INDUCTOR = [
    Row(
        "decompose.aten.softplus.default",
        softplus,
        "aot_inference_graph",
        "after_pre_grad_graph",
        '+        mul: "f32[16, 16][16, 1]cpu" = torch.ops.aten.mul.Tensor(log1p, 1.5);',
    ),
    Row(
        "postgrad.post_grad_custom_post_pass",
        over_tanh,
        "inductor_post_grad_graph (inference)",
        "before_post_grad_graph (inference)",
        '+        tanh: "f32[16, 16][16, 1]cpu" = torch.ops.aten.sin.default(arg0_1);',
    ),
    Row(
        "lower.aten.tanh.default",
        over_tanh,
        "ir_pre_fusion (inference)",
        "inductor_post_grad_graph (inference)",
        "+op0: SchedulerNode(ComputedBuffer)",
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize("row", INDUCTOR, ids=lambda row: row.unit)
def test_a_wrong_unit_of_inductor_appears_in_the_text_that_torch_writes_there(
    row: Row, tmp_path: Path
) -> None:
    plant = planted_inductor.PLANTS[row.unit]
    found, _ = compared("inductor", row, tmp_path, lambda: plant("wrong"))
    assert found is not None
    assert (found.stage, found.last_equal, found.ended_before) == (row.stage, row.last_equal, "")
    assert row.line in "\n".join(found.lines)


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("exception", 120), ("segfault", 120), pytest.param("hang", 5, marks=pytest.mark.slow)],
)
def test_the_end_of_a_compile_is_located_by_the_stage_that_was_never_written(
    kind: str, seconds: float, tmp_path: Path
) -> None:
    row = EMBEDDED[2]
    plant = planted.PLANTS[row.unit]
    found, _ = compared("tcdebug", row, tmp_path, lambda: plant(kind), seconds)
    assert found == StageDiff("", "passes (inference)", ended_before="lower (inference)")


@pytest.mark.parametrize(
    ("target", "last"),
    [
        ("tcdebug", "runtime (backward)"),
        pytest.param("inductor", "inductor_output_code (backward)", marks=pytest.mark.slow),
    ],
)
def test_two_compiles_of_a_case_write_equal_texts(target: str, last: str, tmp_path: Path) -> None:
    row = Row("nothing.like.this", centred, "", last, "", gradient=True)
    found, _ = compared(target, row, tmp_path, lambda: None)
    assert found == StageDiff("", last)
    if target == "tcdebug":
        again, _ = compared(target, row, tmp_path, lambda: None)
        assert again == found, "in a folder that has an earlier one"


def test_a_backend_built_on_aotautograd_has_its_graphs(tmp_path: Path) -> None:
    row = Row("decompose.aten.tanh_backward", over_tanh, "", "", "", gradient=True)
    found, _ = compared("aot_eager_decomp_partition", row, tmp_path, lambda: None)
    assert found is not None
    assert (found.stage, found.last_equal) == ("aot_joint_graph", "dynamo_output_graph")
    assert "-        tanh_backward: " in "".join(found.lines)


def test_the_end_of_an_inductor_compile_is_located_by_the_stage_that_was_never_written(
    tmp_path: Path,
) -> None:
    row = INDUCTOR[1]
    plant = planted_inductor.PLANTS[row.unit]
    found, _ = compared("inductor", row, tmp_path, lambda: plant("segfault"))
    assert found == StageDiff(
        "",
        "before_post_grad_graph (inference)",
        ended_before="inductor_post_grad_graph (inference)",
    )


# -- texts ------------------------------------------------------------------------------------


def test_the_first_stage_that_differs_is_reported_with_its_diff(tmp_path: Path) -> None:
    good = {"aot": "a\n", "lower": "b\nc\n", "codegen": "d\n"}
    bad = {"aot": "a\n", "lower": "b\nx\n", "codegen": "y\n"}
    found = first_difference(good, bad, tmp_path)
    path = tmp_path / "lower.diff"
    assert found == StageDiff("lower", "aot", "", str(path), ["@@ -1,2 +1,2 @@", " b", "-c", "+x"])
    assert path.read_text() == "--- good\n+++ bad\n@@ -1,2 +1,2 @@\n b\n-c\n+x\n"


def test_a_stage_that_only_one_compile_has_differs(tmp_path: Path) -> None:
    short, long = {"aot": "a"}, {"aot": "a", "kernels": "k"}
    assert first_difference(short, long, tmp_path).lines == ["@@ -0,0 +1 @@", "+k"]
    assert first_difference(long, short, tmp_path).lines == ["@@ -1 +0,0 @@", "-k"]
    ended = first_difference(long, short, tmp_path, ended=True)
    assert ended == StageDiff("", "aot", ended_before="kernels")


def test_a_compile_that_differs_and_then_ends_reports_both(tmp_path: Path) -> None:
    good, bad = {"aot": "a", "lower": "b"}, {"aot": "x"}
    found = first_difference(good, bad, tmp_path, ended=True)
    assert (found.stage, found.last_equal, found.ended_before) == ("aot", "", "lower")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("# File: /home/me/run/candidate.py:4 in forward", "# File: candidate.py:4 in forward"),
        ("int a = b / c / d; // e", "int a = b / c / d; // e"),
        ("<object at 0x7f01c2d3e4f5>", "<object at <address>>"),
        ("x ^ 0xff", "x ^ 0xff"),
        ("# graph id: 140234567890", "# graph id"),
        ("# AOT ID: ['12_inference']", "# AOT ID: ['inference']"),
        ("cu6trgfi3le6rjy2tgnq3qy7aoj4r6eytgiov2wm6wliehuxarcq.so", "<hash>.so"),
    ],
)
def test_meaningless_differences_are_ignored(text: str, plain: str, tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.emit(StageText(log.save("ir/graph.py", text)), stage="graph")
    assert read_stages(tmp_path) == {"graph": plain}


def test_a_stage_that_is_written_again_counts_as_another_stage(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for text in ("a", "b"):
        log.emit(StageText(log.save("ir/graph.py", text)), stage="graph", direction="forward")
    assert read_stages(tmp_path) == {"graph (forward)": "a", "graph (forward) 2": "b"}


def test_a_compile_that_wrote_nothing_has_no_stages(tmp_path: Path) -> None:
    assert read_stages(tmp_path) == {}
