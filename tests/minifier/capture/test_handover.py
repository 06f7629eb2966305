"""Graphs that are handed to another process arrive unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from subclasses import Quantised, jagged
from torch import fx

from tcdebug.minifier.capture.handover import (
    Handover,
    NotTransferable,
    read_handover,
    write_handover,
)
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.cases.source import module_source
from tcdebug.minifier.reduction.first_wrong import returned_values
from tcdebug.minifier.targets.backends import Backend

INDUCTOR = Backend("inductor", "inductor", "max-autotune", {"max_autotune": False})


def captured(function: Callable[..., Any], *values: Any) -> Case:
    """Return the case of the graph that Dynamo makes from a function."""
    found: list[Case] = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            found.append(from_captured(module, given))
            return module(*given)

        return call

    torch.compile(function, backend=backend)(*values)
    return found[0]


def handed_over(case: Case, folder: Path) -> Case:
    """Return the case as the other process gets it."""
    path = folder / "graph"
    write_handover(Handover(case, INDUCTOR, Ambient.current(), 2, 1), path)
    handed = read_handover(path)
    assert (handed.ordinal, handed.call, handed.backend) == (2, 1, INDUCTOR)
    assert handed.ambient == Ambient.current()
    return handed.case


def test_a_graph_with_branches_operators_and_regions_arrives_unchanged(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> Any:
        with torch.autocast("cpu"):
            y = torch.nn.functional.gelu(x @ x)
        y = torch.ops.aten.add.Tensor(y, y)[..., None]
        z = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
        return y, z, torch.arange(3, dtype=torch.float64)

    case = captured(f, torch.ones(3, 3))
    other = handed_over(case, tmp_path)
    other.graph.lint()
    assert other.key == case.key
    assert module_source(other.module).text == module_source(case.module).text
    assert other.user_lines() == case.user_lines() != []


def test_a_graph_that_was_handed_over_returns_the_same_values_to_find_the_first_wrong_one(
    tmp_path: Path,
) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        part = y[0]
        part.add_(1)
        return y.sin() + y.argmax()

    case = captured(f, torch.ones(3, 3))
    here, there = returned_values(case), returned_values(handed_over(case, tmp_path))
    assert here is not None
    assert there is not None
    assert (
        there.completed_by == here.completed_by == ("add_", "add_", "add_", "sin", "add", "argmax")
    )
    assert there.case.key == here.case.key


def test_a_graph_whose_sizes_depend_on_data_can_be_handed_over(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero().sin().cos().exp()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        case = captured(f, torch.ones(3, 3))
    other = handed_over(case, tmp_path)
    assert other.key == case.key
    assert returned_values(case) is returned_values(other) is None


def test_a_case_that_was_handed_over_keeps_its_devices_when_it_is_handed_on(tmp_path: Path) -> None:
    case = captured(torch.sin, torch.ones(3))
    there = replace(case, inputs=tuple(replace(spec, device="cuda:1") for spec in case.inputs))
    other = handed_over(there, tmp_path)
    assert [spec.device for spec in other.inputs] == ["cuda:1"]
    assert [spec.value.device.type for spec in other.inputs] == ["cpu"]


def test_a_graph_with_calls_of_numpy_arrives_unchanged(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.eye(3) @ np.sqrt(x.numpy()).T - x.numpy().sum())

    case = captured(f, torch.ones(3, 3))
    other = handed_over(case, tmp_path)
    assert "_numpy.eye" in module_source(other.module).text
    assert module_source(other.module).text == module_source(case.module).text


def test_a_graph_that_assigns_to_data_arrives_unchanged(tmp_path: Path) -> None:
    def f(p: torch.Tensor) -> torch.Tensor:
        p.data = p.data * 3
        return p + 1

    case = captured(f, torch.nn.Parameter(torch.ones(2)))
    other = handed_over(case, tmp_path)
    assert "p_.data = " in module_source(other.module).text
    assert module_source(other.module).text == module_source(case.module).text


def test_views_leaves_and_parameters_arrive_unchanged(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    weight = torch.nn.Parameter(torch.ones(3))

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.mul_(2) + b * weight

    case = captured(f, base[:3], base[3:])
    other = handed_over(case, tmp_path)
    values = {spec.name: spec.value for spec in other.inputs}
    a, b = values["L_a_"], values["L_b_"]
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    assert b.storage_offset() == 3
    parameters = [v for v in values.values() if isinstance(v, torch.nn.Parameter)]
    assert [p.requires_grad for p in parameters] == [True]


def test_a_function_that_another_process_cannot_know_is_refused(tmp_path: Path) -> None:
    def foreign(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    case = captured(lambda x: x.sin(), torch.ones(2))
    case.calls[0].op, case.calls[0].target = "call_function", foreign
    with pytest.raises(NotTransferable, match="foreign"):
        write_handover(Handover(case, INDUCTOR, Ambient.current(), 0, 0), tmp_path / "graph")


def test_a_sparse_tensor_on_a_device_is_refused(tmp_path: Path) -> None:
    sparse = torch.empty((2, 2), layout=torch.sparse_coo, device="meta")
    case = captured(lambda x: x.sin(), torch.ones(2))
    changed = case.with_inputs({"L_x_": replace(case.inputs[0], value=sparse)})
    with pytest.raises(NotTransferable, match="L_x_ is a Tensor"):
        write_handover(Handover(changed, INDUCTOR, Ambient.current(), 0, 0), tmp_path / "graph")


def test_tensor_subclasses_arrive_unchanged(tmp_path: Path) -> None:
    one = jagged(3, 5, gradient=True)
    integers = torch.ones(4, 4, dtype=torch.int8)
    weight = torch.nn.Parameter(Quantised(integers, torch.rand(4, 1), "rows"), False)
    case = captured(lambda x, y, z: (x + y, z.sin()), one, one.detach() * 2, weight)
    other = handed_over(case, tmp_path)
    assert other.key == case.key
    assert [type(value) for value in other.values()] == [type(value) for value in case.values()]
    other.module(*other.values())
