"""Loops are split where their conditions change, and read the same elements as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from hypothesis import assume, given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled
from property_settings import property_settings
from torch.nn import functional as F

X, Y = torch.randn(9, 200), torch.randn(9, 300)
PLANES = torch.randn(5, 12, 130, generator=torch.Generator().manual_seed(0))
SPLIT: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "join of rows": (lambda x, y: torch.cat([x * 2, y], 1), [X, Y], 2),
    "join of columns": (lambda x, y: torch.cat([x, y * 2], 0), [X, X], 2),
    "stack": (lambda x, y: torch.stack([x, y * 2, x + y], 1), [X, X], 3),
    "join of joins": (
        lambda x, y: torch.cat([torch.cat([x, y], 1), torch.cat([y, x], 1)], 0),
        [X, Y],
        4,
    ),
    "gradient of a split": (lambda x: torch.stack(x.chunk(4, 1), 0).flatten(0, 1), [X], 4),
    "reflection": (lambda x: F.pad(x, (3, 4), mode="reflect"), [PLANES], 3),
    "replication": (lambda x: F.pad(x, (2, 5), mode="replicate"), [PLANES], 3),
    "rotation": (lambda x: x.roll(7, 1) + 1, [X], 2),
    "padding": (lambda x: F.pad(x, (70, 80)), [PLANES], 3),
    "halves turned": (
        lambda x: torch.cat([-x[:, 100:], x[:, :100]], 1) * 2,
        [torch.randn(9, 200)],
        2,
    ),
}


@pytest.mark.parametrize("name", SPLIT)
def test_each_part_of_a_loop_has_no_condition_and_is_vectorized(tmp_path: Path, name: str) -> None:
    function, inputs, parts = SPLIT[name]
    text = kernels_as_eager(function, inputs, exact=True)
    assert text.count("#pragma omp simd") == parts
    assert "checked_place" not in text
    assert " ? " not in text


def test_a_condition_on_a_short_row_remains_a_mask(tmp_path: Path) -> None:
    x = torch.randn(64, 30)
    text = kernels(lambda x: F.pad(x, (3, 3)), x)
    assert text.count("#pragma omp simd") == 1
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int16, torch.uint8])
def test_a_short_row_of_elements_without_masks_is_split(dtype: torch.dtype) -> None:
    x = (torch.randn(64, 30) * 30).to(dtype)
    text = kernels_as_eager(lambda x: F.pad(x, (3, 3)), [x], exact=True)
    assert text.count("for (int64_t i1 =") == 3
    assert " ? " not in text
    shorter = kernels(lambda x: F.pad(x, (3, 3)), x[:, :15].contiguous())
    assert shorter.count("for (int64_t i1 =") == 1


def test_a_loop_is_whole_with_the_unit_off() -> None:
    function, inputs, _ = SPLIT["join of rows"]
    whole = kernels(function, *inputs, off=("codegen.index_sets",))
    assert whole.count("for (") == kernels(function, *inputs).count("for (") - 1


ROWS, COLUMNS = torch.randn(9, 768), torch.randn(9, 2400)
SWEEPS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    # function, inputs, parts of all sweeps
    "sum": (lambda x, y: torch.cat([x * 2, y], 1).sum(1), [ROWS, ROWS], 2),
    "sum of long parts": (lambda x, y: torch.cat([x.sin(), y], 1).sum(1), [ROWS, COLUMNS], 2),
    "largest": (lambda x, y: (x.roll(3, 1) - y).amax(1), [ROWS, ROWS], 2),
    "softmax": (lambda x, y: torch.cat([x, y * 2], 1).softmax(1), [ROWS, ROWS], 6),
    "norm": (lambda x: F.layer_norm(F.pad(x, (128, 128)), (1024,)), [ROWS], 9),
    "largest of everything": (lambda x, y: torch.cat([x * 2, y]).amax(), [ROWS, ROWS], 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_are_split_where_their_conditions_change(name: str, dtype: torch.dtype) -> None:
    function, given, parts = SWEEPS[name]
    torch._dynamo.reset()
    inputs = [x.to(dtype) for x in given]
    text = kernels_as_eager(function, inputs)
    assert text.count("/* r0 from") == parts
    torch._dynamo.reset()
    whole = compiled(function, options={"off": ["codegen.index_sets"]})
    assert_as_eager(whole, function, inputs)


@property_settings(12)
@given(
    lengths=st.lists(st.sampled_from([3, 64, 200, 768, 1100]), min_size=2, max_size=3),
    padding=st.tuples(st.integers(0, 80), st.integers(0, 80)),
    last=st.sampled_from(["sum", "amax", "argmax", "softmax", "var_mean", "logsumexp"]),
)
def test_sweeps_over_joined_and_padded_rows_are_those_of_eager(
    lengths: list[int], padding: tuple[int, int], last: str
) -> None:
    inputs = [torch.randn(5, n) for n in lengths]

    def function(*given: torch.Tensor) -> Any:
        row = F.pad(torch.cat([*given[:-1], given[-1].sin()], 1), padding)
        return getattr(torch, last)(row - row.mean(1, keepdim=True), 1)

    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, inputs)


def first_row(x: torch.Tensor) -> torch.Tensor:
    return x.add_(2).select(0, 0).fill_(1)


def two_rows(x: torch.Tensor) -> torch.Tensor:
    scaled = x.mul_(3)
    scaled[1].fill_(1)
    scaled[2].fill_(5)
    return scaled[:, 2:]


def some_columns(x: torch.Tensor) -> torch.Tensor:
    scaled = x.mul_(3)
    scaled[:, :70].fill_(1)
    return scaled[:, 2:]


@pytest.mark.parametrize("function", [first_row, two_rows, some_columns])
@pytest.mark.parametrize("sizes", [(3, 2), (4, 200), (3, 5, 130)])
def test_a_node_that_is_constant_in_one_part_is_not_in_the_others(
    function: Callable[..., Any], sizes: tuple[int, ...]
) -> None:
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [torch.randn(sizes)], exact=True)


@property_settings(8)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=2, max_size=4),
    axis=st.sampled_from([0, 1]),
    padding=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    mode=st.sampled_from(["constant", "reflect", "replicate", "circular"]),
)
def test_joined_and_padded_tensors_are_those_of_eager(
    lengths: list[int], axis: int, padding: tuple[int, int], mode: str
) -> None:
    assume(max(padding) < (12 if axis == 0 else sum(lengths)))  # eager refuses more
    sizes = [(n, 12) if axis == 0 else (12, n) for n in lengths]
    inputs = [torch.arange(a * b).view(a, b) + 1000 * k for k, (a, b) in enumerate(sizes)]

    def function(*given: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([*given[:-1], given[-1] * 2], axis)
        return F.pad(joined.float()[None], padding, mode=mode) + 1

    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, inputs, exact=True)


CHOSEN: dict[str, Callable[..., torch.Tensor]] = {
    "diagonal": lambda x: torch.diagonal_scatter(x, x.diagonal() * 2),
    "slice": lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1),
    "row": lambda x: torch.select_scatter(x, x[0] * 2, 0, 1),
    "join": lambda x: torch.cat([x[:1] * 2, x[1:] + 1]),
    "half": lambda x: torch.diagonal_scatter(x.half(), x.half().diagonal() * 2).float(),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_both_sides_of_a_condition_need_is_computed_before_it(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x, CHOSEN[name](torch.where(x, x, 1.5)), 1.0)

    found = compiled(function, dynamic=True)
    for size in (3, 5):
        x = torch.arange(size * size * 2).reshape(size, size, 2) % 3 == 0
        assert_as_eager(found, function, [x], exact=True)
