"""A choice of two elements of one row becomes one element at a chosen place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager
from hypothesis import assume, given
from hypothesis import strategies as st
from judge import assert_same
from property_settings import property_settings
from stages import at_stage, capture
from torch.nn import functional as F

from tcdebug.compiler.ir.graph import Pointwise

X = torch.arange(2.0 * 3 * 7 * 9).view(2, 3, 7, 9)


def circular(*padding: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: F.pad(x, padding, mode="circular")


@pytest.mark.parametrize("function", [circular(1, 1, 1, 1), circular(2, 3, 0, 4)])
def test_a_tensor_of_slices_of_itself_is_one_kernel_that_reads_once(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    text = kernels_as_eager(function, [X], exact=True)
    assert text.count('extern "C" int cpp_') == 2  # the kernel, and its arguments in an array


def test_a_circular_padding_has_literal_elements() -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]])
    found = at_stage("inlined", circular(2, 1))(x)
    assert found.tolist() == [[[5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0]]]


@property_settings(8)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 40)),
    padding=st.tuples(*[st.integers(0, 9)] * 4),
)
def test_circular_paddings_are_those_of_eager(
    size: tuple[int, int], padding: tuple[int, int, int, int]
) -> None:
    assume(max(padding[:2]) <= size[1] and max(padding[2:]) <= size[0])
    x = torch.arange(float(size[0] * size[1])).view(1, 1, *size)
    torch._dynamo.reset()
    assert_same(at_stage("inlined", circular(*padding))(x), circular(*padding)(x), exact=True)


@property_settings(8)
@given(
    places=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(1, 6)), min_size=1, max_size=3
    )
)
def test_slices_copied_to_slices_are_those_of_eager(places: list[tuple[int, int, int]]) -> None:
    assume(all(max(to, start) + length <= 12 for to, start, length in places))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for to, start, length in places:
            y[:, to : to + length] = y[:, start : start + length].clone()
        return y

    x = torch.arange(24.0).view(2, 12)
    torch._dynamo.reset()
    assert_same(at_stage("inlined", function)(x), function(x), exact=True)


def test_elements_of_two_tensors_or_of_two_rows_stay_a_choice() -> None:
    def two(x: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, x.roll(1, 1)[:, :3], 1, 2, 5)

    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.select_scatter(x, x[1], 1, 4)

    for function, x in ((two, X[0, 0]), (turned, torch.randn(8, 8))):
        torch._dynamo.reset()
        assert_same(at_stage("inlined", function)(x), function(x), exact=True)
    (graph,) = capture(turned, torch.randn(8, 8)).inlined
    (node,) = (n for n in graph.nodes if isinstance(n, Pointwise))
    assert type(node.body).__name__ == "Guarded"


def test_a_short_row_of_a_reflection_reads_neighbours() -> None:
    """Parts of two elements on average are loops; a gather would load elements one by one."""
    x = torch.randn(64, 7, 7)
    text = kernels(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), x)
    assert text.count("#pragma omp simd") == 3
    heavy = kernels(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect").exp(), x)
    assert heavy.count("#pragma omp simd") == 4  # a function has a loop of its own


def test_a_row_that_is_read_in_turns_is_one_loop() -> None:
    x = torch.randn(64, 300)
    many = kernels(lambda x: x[:, torch.arange(300) % 3] + 1, x)
    assert many.count("#pragma omp simd") <= 1
    assert kernels(lambda x: x[:, torch.arange(300) % 150] + 1, x).count("#pragma omp simd") == 2
