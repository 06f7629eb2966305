"""Slices of a cat, and a cat of all slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, aten_graph, ops
from judge import assert_same
from programs import f32, swizzled

from tcdebug.compiler.passes.joined_pieces import joined_pieces

aten = torch.ops.aten


def left(function: Callable[..., Any], *inputs: torch.Tensor) -> dict[str, int]:
    """The remaining operators."""
    before = aten_graph(function, *inputs)
    changed, module = applied(joined_pieces, aten_graph(function, *inputs))
    assert_same(module(*inputs), function(*inputs))
    assert changed == (str(module.graph) != str(before.graph))
    module.graph.eliminate_dead_code()
    module.recompile()
    return ops(module)


def cat(*parts: torch.Tensor) -> torch.Tensor:
    return aten.cat.default(list(parts), 1)  # type: ignore[no-any-return] # a tensor


def piece(x: torch.Tensor, start: int, end: int) -> torch.Tensor:
    return aten.slice.Tensor(x, 1, start, end)  # type: ignore[no-any-return] # a tensor


TAKEN_OUT: dict[str, Callable[..., Any]] = {
    "slice": lambda x, y: piece(cat(x, y), 4, 6).sin(),
    "slice_to_the_end": lambda x, y: piece(cat(x, y), 4, 1 << 62).sin(),
    "from_the_end": lambda x, y: piece(cat(x, y), -2, 1 << 62).sin(),
    "split": lambda x, y: aten.split_with_sizes.default(cat(x, y), [4, 2], -1)[1].sin(),
    "even_split": lambda x, y: aten.split.Tensor(cat(y, y), 2, 1)[0].sin(),
}


@pytest.mark.parametrize("name", TAKEN_OUT)
def test_a_slice_of_a_cat_becomes_its_operand(name: str) -> None:
    assert left(TAKEN_OUT[name], f32(3, 4), f32(3, 2)) == {"sin.default": 1}


def test_a_cat_of_all_slices_becomes_their_source() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return cat(*aten.split.Tensor(x, 2, 1)).sin()

    assert left(function, f32(3, 6)) == {"sin.default": 1}


KEPT: dict[str, Callable[..., Any]] = {
    "other_bounds": lambda x, y: piece(cat(x, y), 3, 6).sin(),
    "a_step": lambda x, y: aten.slice.Tensor(cat(x, y), 1, 0, 4, 2).sin(),
    "other_dimension": lambda x, y: aten.slice.Tensor(cat(x, y), 0, 0, 3).sin(),
    "returned": lambda x, y: piece(cat(x, y), 0, 4),
    "a_view_returned": lambda x, y: aten.unsqueeze.default(piece(cat(x, y), 0, 4), 0),
    "other_order": lambda x, y: cat(piece(x, 2, 4), piece(x, 0, 2)).sin(),
    "a_piece_missing": lambda x, y: cat(piece(x, 0, 1), piece(x, 1, 3)).sin(),
    "promoted": lambda x, y: piece(cat(x, y.double()), 0, 4).sin(),
    "by_strides": lambda x, y: aten.as_strided.default(piece(cat(x, y), 0, 4), [2], [1]).sin(),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_slices_stay(name: str) -> None:
    assert left(KEPT[name], f32(3, 4), f32(3, 2))["cat.default"] == 1


def test_a_slice_whose_strides_a_reader_depends_on_stays() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return piece(cat(x, y), 0, 4).sin()

    assert left(function, swizzled(3, 4), f32(3, 2))["cat.default"] == 1
