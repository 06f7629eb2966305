"""Updates of parts of inputs are made in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import assert_as_eager, compiled
from programs import f32
from stages import capture
from torch.nn import functional as F

PLACES = torch.tensor([1, 2, 1])


def called(function: Callable[..., Any], *inputs: Any) -> dict[str, int]:
    """The operators of the ATen graph after all passes."""
    captured = capture(function, *inputs)
    nodes = captured.aten[0].graph.nodes
    return dict(Counter(str(n.target) for n in nodes if n.op == "call_function"))


def slice_then_read(x: torch.Tensor) -> torch.Tensor:
    x[1:3] = 2.0
    return x @ x.t()


def element(x: torch.Tensor) -> torch.Tensor:
    x[2, 1:3] *= 3
    return x.sum(0)


def rows(x: torch.Tensor) -> torch.Tensor:
    x.index_put_((PLACES,), x[:3] * 2, accumulate=True)
    x.index_add_(1, PLACES, x[:, :3])
    return F.relu(x)


def diagonal(x: torch.Tensor) -> torch.Tensor:
    x.diagonal().fill_(7)
    x[0] = x[1]
    return x + 1


IN_PLACE: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "slice": (slice_then_read, ["aten.slice.Tensor"]),
    "element": (element, ["aten.select.int", "aten.slice.Tensor"]),
    "rows": (rows, ["aten.index_put_.default", "aten.index_add_.default"]),
    "diagonal": (diagonal, ["aten.diagonal.default"]),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_part_of_an_input_is_updated_in_place(name: str, dynamic: bool) -> None:
    function, operators = IN_PLACE[name]
    assert_as_eager(compiled(function, dynamic=dynamic), function, [f32(4, 4)])
    torch._dynamo.reset()
    left = called(function, f32(4, 4))
    assert not any("scatter" in op or op == "aten.index_put.default" for op in left)
    assert set(operators) <= set(left)


def old_values(x: torch.Tensor) -> torch.Tensor:
    y = torch.select_scatter(x, x[0] * 2, 0, 1)
    z = y - x
    x.copy_(y)
    return z


def returned(x: torch.Tensor) -> torch.Tensor:
    y = torch.slice_scatter(x, x[:1] * 2, 0, 1, 2)
    x.copy_(y)
    return y


NOT_IN_PLACE: dict[str, Callable[..., Any]] = {
    "old_values": old_values,
    "returned": returned,
    "no_input": lambda x: torch.slice_scatter(x, x[:1] * 2, 0, 1, 2) + 1,
}


def part_of_a_copy(x: torch.Tensor) -> torch.Tensor:
    x[0] += 1
    kept = x[0].clone()[1:]
    x[0].zero_()
    return kept


def turned_copy(x: torch.Tensor) -> torch.Tensor:
    x[:2] += 1
    kept = x[:2].clone().t()
    x[:2] *= 3
    return kept


def copy_of_the_whole(x: torch.Tensor) -> torch.Tensor:
    x[0] += 1
    kept = x.clone().view(-1)
    x[1] += 1
    return kept


def copy_of_a_diagonal(x: torch.Tensor) -> torch.Tensor:
    x.diagonal().add_(1)
    kept = x.diagonal().clone()[::2]
    x[0] = 5
    return kept


def copy_of_indexed_rows(x: torch.Tensor) -> torch.Tensor:
    x.index_add_(0, PLACES, x[:3] * 2)
    kept = x[1:3].clone()[0]
    x[0] += 1
    return kept


def copy_of_every_second(x: torch.Tensor) -> torch.Tensor:
    x[::2] += 2
    kept = x[::2].clone().t()
    x[::2] += 2
    return kept


EARLIER: dict[Callable[..., Any], tuple[int, int]] = {
    part_of_a_copy: (4, 4),
    turned_copy: (4, 4),
    copy_of_the_whole: (4, 4),
    copy_of_a_diagonal: (4, 4),
    copy_of_indexed_rows: (4, 4),
    copy_of_every_second: (1, 1),
}


@pytest.mark.parametrize("function", EARLIER)
def test_a_returned_view_of_an_earlier_value_keeps_that(function: Callable[..., Any]) -> None:
    assert_as_eager(compiled(function), function, [f32(*EARLIER[function])])


@pytest.mark.parametrize("name", NOT_IN_PLACE)
def test_an_input_whose_old_values_are_needed_is_not_updated_in_place(name: str) -> None:
    function = NOT_IN_PLACE[name]
    assert_as_eager(compiled(function), function, [f32(4, 4)])
    torch._dynamo.reset()
    assert any("_scatter" in op for op in called(function, f32(4, 4)))
