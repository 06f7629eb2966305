"""index_fill as a selection by a mask."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from judge import assert_same, compiled
from programs import f32
from stages import capture

NUMBERS = (1, 2.5, float("nan"), True)
INDEX = torch.tensor([0, 2, -1, 2])
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: f32(5, 6),
    "transposed": lambda: f32(5, 6).t(),
    "strided": lambda: f32(5, 12)[:, ::2],
    "expanded": lambda: f32(1, 6).expand(5, 6),
    "bool": lambda: f32(4, 5) > 0,
    "uint8": lambda: torch.ones(3, 3, dtype=torch.uint8),
    "complex": lambda: torch.ones(3, 3, dtype=torch.complex64),
}


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS)
def test_results_and_strides_are_those_of_eager(make: Callable[[], torch.Tensor]) -> None:
    x = make()
    numbers = NUMBERS if x.is_floating_point() else (1,)

    def filled(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        value = torch.ones((), dtype=x.dtype)
        results = [x.index_fill(d, index, n) for d in (0, -1) for n in numbers]
        return [*results, x.index_fill(1, index, value)]

    actual, expected = compiled(filled)(x, INDEX), filled(x, INDEX)
    assert_same(actual, expected)
    assert [a.stride() for a in actual] == [e.stride() for e in expected]


@pytest.mark.parametrize("index", [torch.tensor(0), torch.tensor([0, -1])])
def test_a_tensor_without_dimensions_has_one_element(index: torch.Tensor) -> None:
    filled = compiled(lambda x, index: x.index_fill(-1, index, 7.0))
    assert filled(torch.tensor(2.0), index).item() == 7.0


def test_nothing_is_filled_where_there_is_nothing() -> None:
    none = torch.tensor([], dtype=torch.int64)
    filled = compiled(lambda x, index: x.index_fill(0, index, 7.0))
    assert_same(filled(torch.ones(3), none), torch.ones(3))
    assert filled(torch.ones(0, 3), none).shape == (0, 3)


def test_an_index_out_of_range_is_an_error() -> None:
    with pytest.raises(IndexError, match="index out of range"):
        compiled(lambda x, index: x.index_fill(0, index, 1.0))(f32(3), torch.tensor([7]))


def test_it_fuses_with_what_follows() -> None:
    captured = capture(lambda x, index: x.index_fill(1, index, 1.0).sin() * 2, f32(5, 6), INDEX)
    (aten,) = captured.aten
    called = [str(n.target) for n in aten.graph.nodes if n.op == "call_function"]
    assert "aten.where.self" in called
    assert not {"aten.index_copy.default", "aten.index_fill.int_Scalar"} & set(called)
