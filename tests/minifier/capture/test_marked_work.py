"""What a script itself calls and what may not end is marked while it lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tcdebug
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.gated import SUPERVISION
from tcdebug.compiler.stages.gated_passes import GatedPasses
from tcdebug.minifier.capture.capture_marks import CaptureMarks, capturing_for
from tcdebug.minifier.capture.marked_work import work_marked

ONES = torch.ones(2)


class Looking(torch.nn.Module):
    """Calls `look` when it is captured."""

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.look()
        return x + 1


def gated_pass(module: Looking) -> None:
    @tcdebug.gated("outer")
    def outer(graph: torch.fx.Graph) -> None:
        inner(graph)
        module.look()

    @tcdebug.gated("inner")
    def inner(graph: torch.fx.Graph) -> None:
        module.look()

    outer(torch.fx.Graph())


def gated_block(module: Looking) -> None:
    with tcdebug.gated("block", graph=torch.fx.Graph()):
        module.look()


def joint(module: Looking) -> None:
    with contextlib.ExitStack() as stack:
        torch._functorch.aot_autograd.aot_export_joint_with_descriptors(stack, module, (ONES,))


CALLS: dict[str, tuple[Callable[[Looking], Any], str]] = {
    "gated": (gated_pass, "user.outer"),
    "block": (gated_block, "user.block"),
    "export": (lambda m: torch.export.export(m, (ONES,), strict=False), "torch.export.export"),
    "joint": (joint, "torch._functorch.aot_autograd.aot_export_joint_with_descriptors"),
    "make_fx": (
        lambda m: torch.fx.experimental.proxy_tensor.make_fx(m)(ONES),
        "torch.fx.experimental.proxy_tensor.make_fx",
    ),
    "symbolic": (lambda m: torch.fx.symbolic_trace(m), "torch.fx.symbolic_trace"),
    "jit": (lambda m: torch.jit.trace(m, ONES), "torch.jit.trace"),
}


@pytest.mark.parametrize(("call", "what"), CALLS.values(), ids=CALLS)
def test_a_pass_or_a_capture_that_the_script_asks_for_is_marked_while_it_lasts(
    call: Callable[[Looking], Any], what: str, tmp_path: Path
) -> None:
    seen: list[str] = []
    with work_marked(CaptureMarks(tmp_path, lambda: True), EventLog(None)):
        call(Looking(lambda: seen.append(capturing_for(tmp_path)[1])))
    assert set(seen) == {what}
    assert not list(tmp_path.iterdir())
    call(Looking(lambda: seen.append(capturing_for(tmp_path)[1])))
    assert set(seen) == {what, ""}, "nothing is marked after the block"


def test_a_pass_that_raises_leaves_no_mark(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ValueError("planted")

    with work_marked(CaptureMarks(tmp_path, lambda: True), EventLog(None)):
        with pytest.raises(ValueError, match="planted"):
            gated_pass(Looking(refuse))
        assert capturing_for(tmp_path) == (0.0, "")


def test_nothing_is_marked_in_a_candidate(tmp_path: Path) -> None:
    seen: list[str] = []
    with work_marked(CaptureMarks(tmp_path, lambda: False), EventLog(None)):
        gated_pass(Looking(lambda: seen.append(capturing_for(tmp_path)[1])))
    assert seen == ["", ""]


def test_a_pass_that_is_supervised_reports_to_its_supervisor_alone(tmp_path: Path) -> None:
    seen: list[str] = []
    gate = Gate()
    with work_marked(CaptureMarks(tmp_path, lambda: True), EventLog(None)):
        supervisor = GatedPasses(gate, EventLog(None))
        for supervised in (SUPERVISION.of_process, SUPERVISION.of_compile):
            with supervised(supervisor):
                gated_pass(Looking(lambda: seen.append(capturing_for(tmp_path)[1])))
    assert seen == ["", "", "", ""]
