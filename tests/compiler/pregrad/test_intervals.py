"""Bounds of tensors that are made from constants, compared with eager's values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import torch_graph
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import PROPERTY
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.node import map_arg

from tcdebug.compiler.pregrad.intervals import Interval, intervals

bf16 = torch.bfloat16
LEAST = torch.finfo(torch.float32).min


def bounds(function: Callable[[], torch.Tensor]) -> Interval | None:
    """The interval of the result of a function whose sizes are those of its graph."""
    torch._dynamo.reset()
    x = torch.zeros(5)
    graph = torch_graph(lambda x: (x + 1, function()), x).graph
    result = graph.output_node().args[0][1]
    return intervals(graph).get(result)


PROGRAMS: dict[str, tuple[Callable[[], torch.Tensor], Interval | None]] = {
    "places": (lambda: torch.arange(7), Interval(0, 6)),
    "places from one on": (lambda: torch.arange(3, 7)[None, :, None], Interval(3, 6)),
    "no places": (lambda: torch.arange(3, 3), Interval(3, 3)),
    "every third place": (lambda: torch.arange(0, 7, 3), Interval(0, 6)),
    "downwards": (lambda: torch.arange(7, 0, -1), None),
    "distances": (lambda: (torch.arange(7) - torch.arange(3)[:, None]).abs(), Interval(0, 6)),
    "near enough": (lambda: abs(torch.arange(7) - torch.arange(7)[:, None]) <= 6, Interval(1, 1)),
    "too far": (lambda: abs(torch.arange(7) - torch.arange(7)[:, None]) <= 5, Interval(0, 1)),
    "never": (lambda: torch.arange(7) > 6, Interval(0, 0)),
    "in order": (lambda: torch.arange(7) <= torch.arange(7)[:, None], Interval(0, 1)),
    "both": (lambda: (torch.arange(7) >= 0) & torch.ones(7, dtype=torch.bool), Interval(1, 1)),
    "one of both": (lambda: (torch.arange(7) > 6) | (torch.arange(7) < 7), Interval(1, 1)),
    "not": (lambda: ~torch.zeros(3, dtype=torch.bool), Interval(1, 1)),
    "bits": (lambda: torch.arange(7) & 1, None),
    "added": (lambda: (1.0 - torch.ones(7, dtype=bf16)) * -10000.0, Interval(0, 0)),
    "too small for a half": (lambda: torch.zeros(3, dtype=torch.half) * -1e9, None),
    "minus infinity": (lambda: torch.full((3,), -float("inf")), None),
    "zero times infinity": (lambda: torch.zeros(3) * float("inf"), None),
    "filled nowhere": (
        lambda: torch.zeros(3).masked_fill(torch.ones(3) < 1, -float("inf")),
        Interval(0, 0),
    ),
    "filled": (lambda: torch.zeros(3).masked_fill(torch.arange(3) > 1, LEAST), Interval(LEAST, 0)),
    "chosen": (lambda: torch.where(torch.ones(3) > 0, 0.0, LEAST), Interval(0, 0)),
    "rounded": (lambda: torch.full((3,), 257.0).to(bf16), None),
    "truth": (lambda: torch.full((3,), -2.0).bool(), Interval(1, 1)),
    "wrapped around": (lambda: torch.full((3,), 127, dtype=torch.int8) + 1, None),
    "below zero without a sign": (lambda: torch.zeros(3, dtype=torch.uint8) - 1, None),
    "bytes as another type": (lambda: torch.ones(4, dtype=torch.int32).view(torch.float32), None),
    "random": (lambda: torch.rand(3) * 0, None),
    "not written yet": (lambda: torch.empty(3), None),
    "written to": (lambda: torch.ones(3).zero_(), None),
    "written elsewhere": (lambda: torch.zeros(3).add_(1) * 1, None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bounds_are_found(name: str) -> None:
    function, expected = PROGRAMS[name]
    assert bounds(function) == expected


def test_sizes_may_be_symbolic() -> None:
    def function(x: torch.Tensor) -> Any:
        n = x.shape[0]
        places = torch.arange(n)
        return places, (places + 0)[:, None] >= 0, places <= n, torch.ones(n, 2 * n) - 1

    torch._dynamo.reset()
    x = torch.zeros(5)
    torch._dynamo.mark_dynamic(x, 0)
    graph = torch_graph(function, x).graph
    known = intervals(graph)
    found = [known.get(node) for node in graph.output_node().args[0]]
    assert found == [Interval(0, 1 << 48), Interval(1, 1), None, Interval(0, 0)]


def test_tensors_that_depend_on_an_input_have_no_bounds() -> None:
    torch._dynamo.reset()
    module = torch_graph(lambda x: (x * 0 + 1, torch.ones_like(x)), torch.zeros(3))
    times, plus, filled = [n for n in module.graph.nodes if n.op.startswith("call")]
    known = intervals(module.graph)
    assert times not in known and plus not in known
    assert known[filled] == Interval(1, 1)


def test_tensors_within_vmap_have_no_bounds() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row * torch.ones_like(row))(x)

    torch._dynamo.reset()
    assert intervals(torch_graph(function, torch.zeros(3, 4)).graph) == {}


DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int64, torch.half, bf16, torch.float32)
NUMBERS = (
    *(0, 1, -1, 3, 127, 128, 255, 257, 65504, (1 << 24) + 1, (1 << 53) + 1, True, 0.0, -0.5, 1.0),
    *(0.1, 1e-9, -1e-40, -10000.0, 65520.0, 1e30, LEAST, float("inf"), float("nan")),
)
CALLS: dict[Any, int] = {
    **dict.fromkeys((operator.add, operator.sub, operator.mul, operator.and_, operator.or_), 2),
    **dict.fromkeys((operator.ge, operator.gt, operator.le, operator.lt, operator.eq), 2),
    **dict.fromkeys((operator.ne, torch.logical_and, torch.logical_or), 2),
    **dict.fromkeys((operator.invert, torch.logical_not, abs, "bool"), 1),
    **dict.fromkeys((torch.where, "masked_fill"), 3),
}


class Drawn:
    """A graph of calls, each of which is also computed."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.mode = FakeTensorMode()
        self.values: dict[fx.Node, torch.Tensor] = {}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> None:
        """Append a call, unless eager rejects it."""
        real, named = map_arg((args, kwargs), lambda n: self.values[n])
        function = getattr(torch.Tensor, target) if isinstance(target, str) else target
        try:
            value = function(*real, **named)
        except (RuntimeError, TypeError, OverflowError):
            return
        if isinstance(value, torch.Tensor):
            kind = "call_method" if isinstance(target, str) else "call_function"
            node = self.graph.create_node(kind, target, args, kwargs)
            node.meta["example_value"] = self.mode.from_tensor(value)
            self.values[node] = value


@PROPERTY
@given(st.data())
def test_values_of_eager_are_within_the_bounds(data: st.DataObject) -> None:
    drawn = Drawn()
    numbers = st.sampled_from(NUMBERS)
    dtypes = st.sampled_from(DTYPES)
    for _ in range(2):
        drawn.call(torch.full, (2,), data.draw(numbers), dtype=data.draw(dtypes))
        start = data.draw(st.integers(-3, 300))
        drawn.call(torch.arange, start, start + 2, dtype=data.draw(dtypes))
    for _ in range(data.draw(st.integers(1, 8))):
        operands = numbers | st.sampled_from([*drawn.values]) if drawn.values else numbers
        target = data.draw(st.sampled_from([*CALLS, "to"]))
        if target == "to":
            drawn.call("to", data.draw(operands), data.draw(dtypes))
        else:
            drawn.call(target, *(data.draw(operands) for _ in range(CALLS[target])))
    for node, found in intervals(drawn.graph).items():
        value = drawn.values[node].double()
        assert bool((value >= found.low).all()), (drawn.graph, node, found)
        assert bool((value <= found.high).all()), (drawn.graph, node, found)
