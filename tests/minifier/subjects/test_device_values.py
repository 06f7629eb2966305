"""Values of a graph that this process cannot run, computed in a child that can."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import finished
from tcdebug.minifier.reduction.operators.cut_nodes import CutNodes
from tcdebug.minifier.subjects.device_values import DeviceValues

PARENT = os.getpid()


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Return twice the numbers, in a child only."""
    if os.getpid() == PARENT:
        raise RuntimeError("there is no device here")
    return x * 2


def case_on(device: str) -> Case:
    graph = fx.Graph()
    x = graph.placeholder("x")
    inner = graph.call_function(doubled, (x,))
    other = graph.call_method("sin", (inner,))
    graph.output((graph.call_method("add", (inner, other)),))
    inputs = (CaseInput("x", torch.tensor([1.0, 2.0]), device=device),)
    return Case(fx.GraphModule({}, graph), inputs)


def test_a_child_computes_all_values_once() -> None:
    children: list[int] = []

    def on_devices(case: Case, work: Callable[[Case], bytes]) -> bytes:
        child = fork(lambda _: work(case))
        children.append(child.pid)
        answer = finished(child).answer
        assert answer is not None
        return answer

    values_of = DeviceValues(on_devices)
    case = case_on("cuda")
    assert {k: v.tolist() for k, v in values_of(case, ["doubled"]).items()} == {"doubled": [2, 4]}
    cut = CutNodes(values_of=values_of).apply(case, ["doubled", "sin"])
    assert cut is not None
    assert [node.name for node in cut.calls] == ["add"]
    assert [spec.value.tolist()[0] for spec in cut.inputs] == pytest.approx([2.0, 0.9092974])
    assert [spec.device for spec in cut.inputs] == ["cuda", "cuda"]
    assert len(children) == 1


def test_a_graph_for_the_cpu_is_not_run_elsewhere() -> None:
    values_of = DeviceValues(lambda case, work: pytest.fail("a child was asked"))
    with pytest.raises(RuntimeError, match="there is no device here"):
        values_of(case_on(""), ["doubled"])
