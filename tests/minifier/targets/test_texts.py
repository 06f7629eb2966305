"""The texts that torch writes for its stages, under their names in this version of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor.debug import ir_post_fusion_log, ir_pre_fusion_log
from torch._logging._internal import trace_log

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.investigation.stages import read_stages
from tcdebug.minifier.targets import inductor

ONCE = ["dynamo_output_graph", "before_pre_grad_graph", "after_pre_grad_graph"]
BEHIND = ["before_post_grad_graph", "inductor_post_grad_graph", "ir_pre_fusion", "ir_post_fusion",
          "inductor_output_code"]  # fmt: skip


def behind(direction: str) -> list[str]:
    return [f"{name} ({direction})" for name in BEHIND]


@pytest.mark.parametrize("gradient", [False, True])
def test_every_text_is_kept_in_the_order_of_the_pipeline(gradient: bool, tmp_path: Path) -> None:
    torch.compile(torch.tanh, backend="eager")(torch.ones(1))  # torch drops its idle trace handler
    loggers = (trace_log, ir_pre_fusion_log, ir_post_fusion_log)
    before = [(log.level, list(log.handlers)) for log in loggers]
    with inductor.switched(Toggles(), EventLog(tmp_path)):
        out = torch.compile(torch.tanh)(torch.ones(4, requires_grad=gradient))
        if gradient:
            out.sum().backward()
    graphs = ["aot_joint_graph", "aot_forward_graph", "aot_backward_graph"]
    training = [*ONCE, *graphs, *behind("forward"), *behind("backward")]
    joint = ["before_joint_graph (inference)", "after_joint_graph (inference)"]
    inference = [*ONCE, "aot_inference_graph", *joint, *behind("inference")]
    assert list(read_stages(tmp_path)) == (training if gradient else inference)
    assert [(log.level, list(log.handlers)) for log in loggers] == before


def test_a_log_without_artifacts_gets_no_texts(tmp_path: Path) -> None:
    before = list(trace_log.handlers)
    with inductor.switched(Toggles(), EventLog(tmp_path, artifacts=False)):
        assert trace_log.handlers == before
        torch.compile(torch.tanh, backend="aot_eager")(torch.ones(4))
    assert read_stages(tmp_path) == {}
