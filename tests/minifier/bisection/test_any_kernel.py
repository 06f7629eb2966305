"""A copy by a kernel distinguishes a fault of a lowering from one that every kernel causes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured
from torch._inductor import ir
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import ops

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection import any_kernel
from tcdebug.minifier.bisection.bisect import Fault, Verdict
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.targets.backends import INDUCTOR, Backend

SIN = torch.ops.aten.sin.default


def no_kernel_is_written() -> None:
    def codegen_node(self: object, node: object) -> None:
        raise RuntimeError("no kernel")

    CppScheduling.codegen_node = codegen_node


def every_kernel_adds_one() -> None:
    def store_output(self: Any, name: str, indexer: Any, variables: Any) -> Any:
        more = ops.add(self.make_loader()(variables), ops.constant(1.0, self.dtype))
        return ops.store(name, indexer(variables), more)

    ir.Pointwise.store_output = store_output


def every_read_of_an_input_is_wrong() -> None:
    original = ir.InputBuffer.make_loader

    def make_loader(self: Any) -> Callable[..., Any]:
        load = original(self)
        return lambda index: ops.add(load(index), ops.constant(1.0, self.get_dtype()))

    ir.InputBuffer.make_loader = make_loader


def a_lowering_raises() -> None:
    def lowered(*args: object) -> None:
        raise RuntimeError("no sine")

    lowerings[SIN] = lowered


def a_lowering_is_wrong() -> None:
    lowerings[SIN] = lowerings[torch.ops.aten.cos.default]


@pytest.mark.parametrize(
    ("plant", "every", "message"),
    [
        (no_kernel_is_written, True, "no kernel"),
        (every_kernel_adds_one, True, "out of tolerance"),
        (every_read_of_an_input_is_wrong, True, "out of tolerance"),
        (a_lowering_raises, False, "no sine"),
        (a_lowering_is_wrong, False, "out of tolerance"),
    ],
)
def test_a_failure_of_every_kernel_is_not_one_of_the_only_lowering(
    plant: Callable[[], None],
    every: bool,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TCDEBUG_LOG")
    target = Backend(INDUCTOR, INDUCTOR, run_dir=str(tmp_path))
    target.warm_up(EventLog(None))
    subject = GraphSubject(target, EventLog(tmp_path), prepare=plant)
    asked = CandidateOracle(
        graph_oracle(subject, Limits(), Budget()), captured(torch.sin, torch.randn(8))
    )
    failure = asked.ask(Toggles(), "the graph")
    assert message in failure.message
    assert asked.ask(Toggles.parse([f"lower.{SIN}"]), "without its lowering").kind == "ok"
    fault = Fault(failure, (Decision(f"lower.{SIN}", "sin", "", 0, True),), whole_unit=True)
    verdict = Verdict((fault,), confirmed=True)
    assert any_kernel.fails_instead(asked.ask, failure, Toggles(), verdict) is every
