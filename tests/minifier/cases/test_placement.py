"""Cases on a device that are kept on the CPU: what they need, and how they are evaluated."""

from __future__ import annotations

from dataclasses import replace

import torch
from subclasses import jagged, two
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.placement import ExampleTensor, devices, evaluated, placed
from tcdebug.minifier.reduction.operators.surgery import node_values, replace_by_inputs
from tcdebug.minifier.reduction.trial import can_run, observed


def case() -> Case:
    """A graph that creates tensors on a GPU, in a process that must not initialise CUDA."""
    graph = fx.Graph()
    x, scale = graph.placeholder("x"), graph.placeholder("scale")
    arange = graph.call_function(torch.arange, (4,), {"device": torch.device("cuda", 0)})
    y = graph.call_function(torch.add, (arange, x))
    moved = graph.call_method("to", (scale, "cuda:0"))
    there = graph.call_method("cuda", (y,))
    z = graph.call_function(torch.mul, (moved, there))
    z.meta["example_value"] = ExampleTensor(torch.float32, torch.device("cuda", 0), False, 16, 1)
    graph.output((graph.call_function(torch.sin, (z,)),))
    inputs = (CaseInput("x", torch.ones(4), device="cuda:0"), CaseInput("scale", torch.tensor(2.0)))
    return Case(fx.GraphModule({}, graph), inputs)


def test_the_devices_of_a_case_are_those_of_its_inputs_and_calls() -> None:
    assert devices(case()) == ("cuda", "cuda:0")
    plain = case().with_inputs({"x": CaseInput("x", torch.ones(4))})
    assert devices(plain) == ("cuda", "cuda:0")
    assert devices(Case(fx.symbolic_trace(torch.nn.ReLU()), (CaseInput("input", 1),))) == ()


def test_a_graph_for_a_device_is_evaluated_on_the_cpu() -> None:
    values = node_values(case(), {"mul"})
    assert values["mul"].tolist() == [2.0, 4.0, 6.0, 8.0]
    assert values["mul"].device.type == "cpu"
    assert tuple(observed(case()).values["mul"].shape) == (4,)
    assert can_run(case(), case())


def test_an_input_in_place_of_a_node_belongs_on_the_device_of_the_node() -> None:
    cut = replace_by_inputs(case(), ["mul"])
    assert cut is not None
    there = [(i.name, i.device) for i in cut.inputs]
    assert there == [("x", "cuda:0"), ("scale", ""), ("mul_value", "cuda:0")]


def test_inputs_are_placed_with_the_memory_that_they_share() -> None:
    base = torch.arange(4.0)
    inputs = (
        CaseInput("x", base[:2], device="meta"),
        CaseInput("scale", base[2:], device="meta"),
    )
    moved = placed(replace(case(), inputs=inputs))
    x, scale = moved.values()
    assert [spec.device for spec in moved.inputs] == ["", ""]
    assert (x.device.type, scale.device.type) == ("meta", "meta")
    assert (scale.storage_offset(), tuple(scale.shape)) == (2, (2,))


def test_equal_tensors_on_different_devices_make_different_cases() -> None:
    on_cpu = case().with_inputs({"x": CaseInput("x", torch.ones(4))})
    assert case().key == case().key != on_cpu.key


def test_nothing_is_replaced_if_no_device_is_named() -> None:
    plain = Case(fx.symbolic_trace(torch.nn.ReLU()), (CaseInput("input", torch.ones(2)),))
    with evaluated(plain):
        assert torch.ones(2, device="meta").device.type == "meta"


def test_tensor_subclasses_are_placed_by_their_parts() -> None:
    one = jagged(3, 5)
    inputs = tuple(
        CaseInput(name, value, device="meta")
        for name, value in (("x", one), ("y", one * 2), ("z", two(2, 2).requires_grad_()))
    )
    x, y, z = placed(replace(case(), inputs=inputs)).values()
    assert [str(value.device) for value in (x, x.values(), y.offsets(), z.a)] == ["meta"] * 4
    assert x.offsets() is y.offsets()
    assert z.requires_grad
