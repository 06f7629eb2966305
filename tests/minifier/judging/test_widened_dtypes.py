"""A graph with casts has a float64 run too, so that rounding elsewhere than eager is not wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured import captured
from torch.nn import functional

from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64, weights_in_float64
from tcdebug.minifier.judging.replay import Results, compare, run

BF16 = torch.bfloat16
ONES = torch.ones(2, dtype=torch.float64)


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product of normed rows, less its mean: what is left is small."""
    for _ in range(3):
        wide = x.float()
        rounded = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(BF16)
        x = x + functional.linear(rounded, weight)
    return x - x.mean(-1, keepdim=True)


def test_a_graph_with_casts_may_round_elsewhere_than_eager_but_not_be_wrong() -> None:
    torch.manual_seed(0)
    case = captured(normed, torch.randn(32, 32).to(BF16), torch.randn(32, 32).to(BF16))
    module = load(case, "case.py")
    eager = run(module, case)
    x, weight = (value.float() for value in case.values())
    once = x
    for _ in range(3):
        unit = once * torch.rsqrt(once.square().mean(-1, keepdim=True) + 1e-6)
        once = once + functional.linear(unit, weight)
    once = (once - once.mean(-1, keepdim=True)).to(BF16)
    assert not torch.allclose(once, eager.outputs[0], rtol=1.6e-2, atol=1e-3), "out of tolerance"

    def outcome(value: torch.Tensor) -> Kind:
        return compare(case, module, eager, Results([value], eager.gradients, eager.inputs)).kind

    assert outcome(once) is Kind.OK
    assert outcome(once * 1.1) is Kind.WRONG


GRAPHS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float": lambda x: x.float() * 2,
    "half": lambda x: x.half() * 2,
    "bfloat16": lambda x: x.bfloat16() * 2,
    "to": lambda x: x.to(torch.bfloat16) * 2,
    "type": lambda x: x.type(torch.float32) * 2,
    "argument": lambda x: x.softmax(0, dtype=torch.float32) + 1.5,
    "new tensor": lambda x: torch.ones(2) * 2,
    "numbers": lambda x: torch.arange(1, 3) / torch.arange(1, 3) + x.to(torch.float16),
    "created": lambda x: torch.full((2,), 2.0, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_graph_that_raises_in_float64_runs_with_its_dtypes_widened(
    graph: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def called(function: Callable[..., Any]) -> torch.Tensor:
        value: torch.Tensor = function(ONES)
        return value @ ONES  # raises for another dtype

    assert in_float64(graph, called) == torch.tensor(4.0, dtype=torch.float64)
    assert torch.get_default_dtype() is torch.float32


def test_a_graph_that_runs_in_float64_keeps_its_casts() -> None:
    third = torch.tensor([1 / 3], dtype=torch.float64)
    assert in_float64(lambda x: x.half().double(), lambda graph: graph(third)).item() != 1 / 3


def test_what_raises_both_times_raises_and_leaves_no_setting() -> None:
    weights = torch.nn.Linear(2, 2)

    def refused(graph: Callable[..., Any]) -> None:
        with weights_in_float64(weights):
            assert weights.weight.dtype is torch.float64
            graph(ONES)

    def raising(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        in_float64(raising, refused)
    assert weights.weight.dtype is torch.get_default_dtype() is torch.float32
