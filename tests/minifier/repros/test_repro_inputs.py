"""The graph and the inputs of a repro script equal those of the case."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured
from repro_scripts import (
    EAGER,
    WRONG,
    checkpointed,
    imported,
    linear,
    namespace_of,
    seeded,
    written,
)

from tcdebug.minifier.cases.case import Case, CaseInput, clone_values
from tcdebug.minifier.repros.inputs_text import input_text
from tcdebug.minifier.repros.repro import Repro, write


def check_inputs(case: Case, path: Path) -> dict[str, Any]:
    """Check that the script's graph on the script's inputs gives the results of the case."""
    names = namespace_of(path)
    made = names["inputs"]()
    for spec, value in zip(case.inputs, made, strict=True):
        if not isinstance(spec.value, torch.Tensor):
            assert value == spec.value
            continue
        assert (value.dtype, value.shape) == (spec.value.dtype, spec.value.shape)
        assert value.stride() == spec.value.stride()
        assert value.requires_grad == spec.value.requires_grad
        torch.testing.assert_close(value, spec.value, rtol=0, atol=0, equal_nan=True)
    torch.manual_seed(0)
    actual = names["Graph"]()(*made)
    torch.manual_seed(0)
    wanted = case.module(*clone_values(case.values()))
    torch.testing.assert_close(actual, wanted, equal_nan=True)
    return names


SMALL = [
    torch.tensor([[1.0, -2.5], [3.25, 1e-30]]).t(),
    torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
    torch.tensor([1, -5, 2**40]),
    torch.tensor([True, False]),
    torch.tensor([1.5, -2.0]).to(torch.bfloat16),
    torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True),
    torch.tensor(2.5),
    torch.empty(0, 3),
    torch.arange(8.0)[3:],
    torch.ones(2, 1).expand(2, 3),
]
LARGE = [
    torch.randn(100),
    torch.randn(20, 30).t(),
    torch.tensor([1 + 2j]),
    torch.tensor([1 + 2j]).conj(),
    torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    torch.arange(80.0)[3:],
    torch.ones(80, 1).expand(80, 3),
]


@pytest.mark.parametrize("value", SMALL)
def test_a_small_input_is_written_out(value: torch.Tensor, tmp_path: Path) -> None:
    case = captured(lambda x: torch.cat([x.view_as(x), x]) if x.dim() else x.clone(), value)
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    check_inputs(case, tmp_path / "repro.py")


@pytest.mark.parametrize("value", LARGE)
def test_other_inputs_are_stored(value: torch.Tensor, tmp_path: Path) -> None:
    case = captured(lambda x: x.clone(), value)
    text, kind = written(case, tmp_path / "repro.py")
    assert kind == "stored"
    assert (tmp_path / "repro.safetensors").exists()
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    check_inputs(case, tmp_path / "repro.py")


def test_seeded_inputs_have_the_same_numbers(tmp_path: Path) -> None:
    def function(x: torch.Tensor, k: torch.Tensor, half: torch.Tensor, m: Any) -> torch.Tensor:
        return x[k] + half.float().sum() + m.sum()

    args = (
        torch.randn(50, 30).t().requires_grad_(),
        torch.randint(0, 30, (90,)),
        torch.randn(80).to(torch.bfloat16),
        torch.rand(70) > 0.5,
    )
    case = seeded(captured(function, *args))
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "seeded"
    check_inputs(case, tmp_path / "repro.py")


def test_inputs_that_share_memory_do_so_in_the_script(tmp_path: Path) -> None:
    base = torch.zeros(6)
    case = captured(lambda a, b: a.add_(1).sum() + b.sum(), base[:4], base[2:])
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    first, second = namespace_of(tmp_path / "repro.py")["inputs"]()
    first.fill_(5.0)
    assert second.tolist() == [5.0, 5.0, 0.0, 0.0]


def test_numbers_are_inputs_too(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    x, n, f = (graph.placeholder(k) for k in ("x", "n", "f"))
    graph.output((graph.call_function(torch.clamp, (x, n, f)),))
    inputs = (CaseInput("x", torch.ones(3)), CaseInput("n", 2), CaseInput("f", math.inf))
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    written(case, tmp_path / "repro.py")
    check_inputs(case, tmp_path / "repro.py")
    assert input_text(CaseInput("f", -math.inf)) == "float('-inf')"
    assert input_text(CaseInput("x", torch.ones(1))) == "torch.tensor([1.0], dtype=torch.float32)"


def test_names_of_the_script_and_of_inputs_do_not_clash(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    names = ["L_data_", "L_torch_", "L_inputs_", "L_os_", "L_stored_", "L_Graph_", "L_inf_"]
    nodes = [graph.placeholder(n) for n in names]
    graph.output((graph.call_function(torch.stack, (nodes,)),))
    inputs = tuple(CaseInput(n, torch.full((100,), float(k))) for k, n in enumerate(names))
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    written(case, tmp_path / "repro.py")
    check_inputs(case, tmp_path / "repro.py")


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    "function",
    [
        checkpointed,
        lambda x: torch.cond(x.sum() > 0, torch.sin, lambda y: y.cos(), (x,)),
        lambda x: Sine.apply(x) * 2,
    ],
)
def test_nested_graphs_are_in_the_script(function: Callable[..., Any], tmp_path: Path) -> None:
    case = captured(function, torch.ones(2, 2, requires_grad=True))
    text, _ = written(case, tmp_path / "repro.py")
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    check_inputs(case, tmp_path / "repro.py")


def test_constants_of_the_graph_are_stored(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, graph.get_attr("a.c"))),))
    root = torch.nn.Module()
    root.a = torch.nn.Module()
    root.a.register_buffer("c", torch.tensor([1.0, 2.0]))
    case = Case(torch.fx.GraphModule(root, graph), (CaseInput("x", torch.ones(2)),))
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    names = check_inputs(case, tmp_path / "repro.py")
    assert names["Graph"]()(torch.zeros(2))[0].tolist() == [1.0, 2.0]


def test_all_inputs_are_stored_on_request(tmp_path: Path) -> None:
    case = seeded(captured(linear, torch.randn(2, 3), torch.randn(3, 4)))
    assert write(case, Repro(WRONG, EAGER), tmp_path / "repro.py", store=True) == "stored"
    check_inputs(case, tmp_path / "repro.py")


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_parameters_are_parameters_in_a_repro_too(
    tmp_path: Path, *, store: bool, requires_grad: bool
) -> None:
    """torch makes their sizes static and, with freezing, computes with their values."""
    weight = torch.nn.Parameter(torch.randn(3, 2), requires_grad)
    flat = torch.randn(8)
    first, second = torch.nn.Parameter(flat[:4]), torch.nn.Parameter(flat[4:])
    values = [weight, first, second, torch.ones(3, requires_grad=True)]
    case = captured(lambda a, b, c, d: ((a + 1).sum(), b + c, d * 2), *values)
    path = tmp_path / "repro.py"
    write(case, Repro(WRONG, EAGER), path, store=store)
    made = namespace_of(path)["inputs"]()
    kinds = [type(value).__name__ for value in made]
    assert kinds == ["Parameter", "Parameter", "Parameter", "Tensor"]
    assert [value.requires_grad for value in made] == [requires_grad, True, True, True]
    assert made[1].untyped_storage().data_ptr() == made[2].untyped_storage().data_ptr()
