"""Graphs with calls of NumPy are written as text that Dynamo captures as the same graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from captured import Recorded
from torch import fx

from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.cases.source import load, module_source


def in_place(x: torch.Tensor) -> Any:
    a = x.numpy().copy()
    a += 1
    a[0] = 3
    a[:, 1:] -= 2
    return torch.from_numpy(a)


def of_dtypes(x: torch.Tensor) -> Any:
    a = x.numpy()
    zeros = np.zeros((3,), dtype=np.int32) + a.astype("float64").sum(axis=0)[:3]
    return zeros, np.arange(5, dtype=np.float32), a.astype(np.int64), np.full_like(a, 2)


def of_tuples(x: torch.Tensor) -> Any:
    a = x.numpy()
    left, right = np.split(a, 2, axis=1)
    rows, columns = np.meshgrid(a[0], a[1])
    return left + right, rows * columns


def of_numbers(x: torch.Tensor) -> Any:
    a = x.numpy()
    return a.mean(), a.max() - a.min(), np.float32(3) * a * float(np.sqrt(np.float64(4)))


def of_modules(x: torch.Tensor) -> Any:
    a = x.numpy()
    square = a[:, :3] @ a[:, :3].T + np.eye(3, dtype=np.float32)
    return np.linalg.inv(square), np.fft.fft(a).real, np.concatenate([a, a], axis=0)


def with_gradients(x: torch.Tensor) -> Any:
    return (x * torch.from_numpy(np.tanh(x.detach().numpy()))).sum()


PROGRAMS = (in_place, of_dtypes, of_tuples, of_numbers, of_modules, with_gradients)


def targets(module: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in module.graph.nodes if n.op in ("call_function", "call_method")]


def captured(function: Callable[..., Any], *values: Any) -> tuple[Case, fx.GraphModule]:
    """Return the case of the only graph of a function, and the graph."""
    recorded = Recorded()
    torch._dynamo.reset()
    torch.compile(function, backend=recorded, fullgraph=True)(*values)
    ((module, given),) = recorded.graphs
    return from_captured(module, given), module


def input_of_programs() -> torch.Tensor:
    return torch.linspace(-2.0, 3.0, 12).view(3, 4)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_graph_with_calls_of_numpy_is_captured_again_as_it_is(
    program: Callable[..., Any],
) -> None:
    case, module = captured(program, input_of_programs())
    assert module_source(case.module).foreign == ()
    loaded = load(case, "<graph>")
    _, again = captured(loaded, input_of_programs())
    assert targets(again) == targets(module)
    torch.testing.assert_close(loaded(input_of_programs()), module(input_of_programs()))


def test_a_call_of_numpy_is_defined_before_the_graph() -> None:
    case, _ = captured(lambda x: np.sqrt(x.numpy()), torch.ones(2))
    source = module_source(case.module)
    assert "import torch._numpy" in source.imports
    assert source.definitions == (
        "torch__dynamo_utils_wrapped_sqrt = torch.compiler.allow_in_graph("
        "torch._dynamo.utils.numpy_to_tensor_wrapper(torch._numpy.sqrt))\n\n\n"
    )
    assert "wrapped_sqrt = torch__dynamo_utils_wrapped_sqrt(" in source.classes


def test_a_function_and_a_method_of_the_same_name_are_two_calls() -> None:
    case, module = captured(lambda x: np.sum(x.numpy() * 2) + x.numpy().sum(), torch.ones(2, 3))
    _, again = captured(load(case, "<graph>"), torch.ones(2, 3))
    assert targets(again) == targets(module)
    assert len({name for name in targets(module) if "sum" in name}) == 2
