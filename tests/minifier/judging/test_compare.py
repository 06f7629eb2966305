"""When a compiled result is wrong, and when it only rounds differently."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.minifier.cases.case import flatten
from tcdebug.minifier.judging.compare import (
    TOLERANCE,
    Difference,
    Referee,
    difference,
    first_difference,
)

PROPERTY = property_settings(100)
INF, NAN = math.inf, math.nan


def what(eager: Any, compiled: Any, reference: Any = None) -> str:
    """Return one word for the difference, or "" if there is none."""
    found = difference(eager, compiled, reference, "output 0")
    return found.what if found else ""


def floats(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def test_equal_tensors_do_not_differ() -> None:
    assert what(floats(1.0, 2.0), floats(1.0, 2.0)) == ""


def test_a_different_dtype_is_reported() -> None:
    found = difference(floats(1.0), floats(1.0).double(), None, "output 2")
    assert found == Difference("dtype", "output 2", "torch.float64 instead of torch.float32")


def test_a_different_shape_is_reported() -> None:
    found = difference(torch.ones(2, 3), torch.ones(3, 2), None, "output 0")
    assert found == Difference("shape", "output 0", "(3, 2), not (2, 3)")


def test_a_scalar_is_not_a_tensor_of_one_element() -> None:
    assert what(torch.ones(()), torch.ones(1)) == "shape"
    assert what(torch.ones(()), 1.0) == "kind"
    assert what(None, torch.ones(())) == "kind"


def test_strides_are_not_compared() -> None:
    assert what(torch.ones(2, 3), torch.ones(3, 2).t()) == ""


# -- floats ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "small", "large"),
    [
        (torch.float64, 1e-8, 1e-6),
        (torch.float32, 5e-5, 5e-4),
        (torch.float16, 1e-3, 8e-3),
        (torch.bfloat16, 8e-3, 4e-2),
    ],
)
def test_how_far_a_float_may_be_off(dtype: torch.dtype, small: float, large: float) -> None:
    one = floats(1.0, 1.0, dtype=dtype)
    assert what(one, floats(1.0, 1.0 + small, dtype=dtype)) == ""
    assert what(one, floats(1.0, 1.0 + large, dtype=dtype)) == "value"
    assert what(one, floats(1.0, 1.0 - large, dtype=dtype)) == "value"


def test_near_zero_the_absolute_tolerance_counts() -> None:
    assert what(floats(0.0), floats(5e-6)) == ""
    assert what(floats(0.0), floats(5e-5)) == "value"


def test_a_wrong_value_is_reported_with_the_worst_place() -> None:
    found = difference(floats(1.0, 2.0, 3.0), floats(1.5, 2.0, 7.0), None, "gradient 1")
    assert found == Difference(
        "value", "gradient 1", "2 of 3 out of tolerance, worst 7 instead of 3"
    )


def test_out_of_tolerance_is_fine_if_eager_is_as_far_from_float64() -> None:
    reference = floats(1.0, 1.0, dtype=torch.float64)
    eager = floats(1.01, 1.0)
    assert what(eager, floats(0.98, 1.0)) == "value"
    assert what(eager, floats(0.98, 1.0), reference) == ""
    assert what(eager, floats(1.029, 1.0), reference) == ""
    assert what(eager, floats(1.031, 1.0), reference) == "value"


def test_half_types_may_have_four_times_eagers_error() -> None:
    reference = floats(1.0, dtype=torch.float64)
    eager = floats(1.0625, dtype=torch.bfloat16)
    assert what(eager, floats(1.234375, dtype=torch.bfloat16), reference) == ""
    assert what(eager, floats(1.265625, dtype=torch.bfloat16), reference) == "value"


def test_a_reference_does_not_make_a_result_within_tolerance_wrong() -> None:
    exact = floats(1.0, dtype=torch.float64)
    assert what(floats(1.0), floats(1.00005), exact) == ""


def test_a_reference_of_another_shape_is_not_used() -> None:
    assert what(floats(1.0), floats(1.1), floats(1.1, 1.1, dtype=torch.float64)) == "value"
    assert what(floats(1.0), floats(1.1), 1.1) == "value"


def test_a_reference_without_finite_values_excuses_nothing() -> None:
    assert what(floats(1.0), floats(1.1), floats(NAN, dtype=torch.float64)) == "value"


@pytest.mark.parametrize(
    ("eager", "compiled", "word"),
    [
        ([NAN, 1.0], [NAN, 1.0], ""),
        ([NAN, 1.0], [1.0, 1.0], "nan"),
        ([1.0, 1.0], [1.0, NAN], "nan"),
        ([NAN, 1.0], [1.0, NAN], "nan"),
        ([INF, -INF], [INF, -INF], ""),
        ([INF, 1.0], [-INF, 1.0], "inf"),
        ([INF, 1.0], [3e38, 1.0], "inf"),
        ([1.0, 1.0], [1.0, -INF], "inf"),
        ([INF, 1.0], [NAN, 1.0], "nan"),
        ([INF, 1.0], [INF, 1.1], "value"),
        ([0.0], [-0.0], ""),
    ],
)
def test_nan_and_infinity_must_be_where_they_are_in_eager(
    eager: list[float], compiled: list[float], word: str
) -> None:
    assert what(floats(*eager), floats(*compiled)) == word


def test_nan_in_eager_alone_is_eagers_own_error() -> None:
    """Eager overflows where float64 does not. The compiled program may do better."""
    assert what(floats(NAN, 1.0), floats(2.0, 1.0), floats(2.0, 1.0, dtype=torch.float64)) == ""
    assert what(floats(INF, 1.0), floats(2.0, 1.0), floats(2.0, 1.0, dtype=torch.float64)) == ""


def test_nan_that_float64_lacks_is_wrong() -> None:
    exact = floats(2.0, dtype=torch.float64)
    assert what(floats(2.0), floats(NAN), exact) == "nan"
    assert what(floats(2.0), floats(INF), exact) == "inf"


def test_eight_bit_floats_have_a_wide_tolerance() -> None:
    dtype = torch.float8_e4m3fn
    assert what(floats(1.0, 2.0).to(dtype), floats(1.125, 2.0).to(dtype)) == ""
    assert what(floats(1.0, 2.0).to(dtype), floats(1.0, 8.0).to(dtype)) == "value"


@PROPERTY
@given(
    st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=6),
    st.sampled_from(sorted(TOLERANCE, key=str)),
)
def test_a_tensor_never_differs_from_itself(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values).to(dtype)
    assert what(tensor, tensor.clone()) == ""
    reference = tensor.to(torch.complex128 if dtype.is_complex else torch.float64)
    assert what(tensor, tensor.clone(), reference) == ""


# -- integers, booleans, complex -------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32],
)
def test_integers_are_exact(dtype: torch.dtype) -> None:
    eager = torch.tensor([[1, 2], [3, 4]], dtype=dtype)
    compiled = torch.tensor([[1, 2], [3, 5]], dtype=dtype)
    assert what(eager, eager.clone()) == ""
    found = difference(eager, compiled, None, "x")
    assert found == Difference("value", "x", "1 of 4 differ, first at (1, 1): 5 instead of 4")


def test_a_large_integer_that_is_off_by_one_is_wrong() -> None:
    assert what(torch.tensor(2**60), torch.tensor(2**60 + 1)) == "value"


def test_booleans_are_exact() -> None:
    assert what(torch.tensor(True), torch.tensor(True)) == ""
    assert what(torch.tensor([True, False]), torch.tensor([True, True])) == "value"


def test_both_parts_of_a_complex_number_count() -> None:
    eager = torch.tensor([1 + 2j, 3 - 4j])
    assert what(eager, torch.tensor([1 + 2j, 3 - 4.00004j])) == ""
    assert what(eager, torch.tensor([1 + 2j, 3 + 4j])) == "value"
    assert what(eager, torch.tensor([complex(NAN, 2), 3 - 4j])) == "nan"


def test_a_complex_number_has_a_reference_too() -> None:
    exact = torch.tensor([1 + 0j], dtype=torch.complex128)
    eager = torch.tensor([1.01 + 0j])
    assert what(eager, torch.tensor([0.98 + 0j]), exact) == ""
    assert what(eager, torch.tensor([0.9 + 0j]), exact) == "value"


def test_lazily_conjugated_numbers_are_compared_by_value() -> None:
    value = torch.tensor([1 + 2j])
    assert what(value.conj(), torch.tensor([1 - 2j])) == ""
    assert what(value.conj(), value) == "value"
    assert what(torch.tensor([1 - 2j]), value.conj(), value.conj().to(torch.complex128)) == ""
    exact = torch.tensor([1 - 2j]).conj()
    assert what(torch.tensor([1 + 2j]), torch.tensor([1 + 3j]), exact) == "value"


def test_lazily_negated_numbers_are_compared_by_value() -> None:
    value = torch.tensor([1 + 2j]).conj().imag
    assert value.is_neg()
    assert what(value, floats(-2.0)) == ""
    assert what(value, floats(2.0)) == "value"


# -- shapes, layouts, structures -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_empty_tensors_do_not_differ(dtype: torch.dtype) -> None:
    assert what(torch.empty(0, 3, dtype=dtype), torch.empty(0, 3, dtype=dtype)) == ""
    assert what(torch.empty(0, 3, dtype=dtype), torch.empty(3, 0, dtype=dtype)) == "shape"


def test_tensors_without_dimensions_are_compared() -> None:
    assert what(torch.tensor(1.0), torch.tensor(1.0)) == ""
    assert what(torch.tensor(1.0), torch.tensor(2.0)) == "value"
    assert what(torch.tensor(3), torch.tensor(4)) == "value"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_are_compared_as_dense_ones(dtype: torch.dtype, layout: str) -> None:
    dense = torch.tensor([[0, 1], [2, 0]], dtype=dtype)
    eager = getattr(dense, layout)()
    assert what(eager, getattr(dense, layout)()) == ""
    assert what(eager, getattr(dense * 2, layout)()) == "value"
    assert what(eager, dense) == ""


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_are_compared_by_their_dequantized_values() -> None:
    def quantized(*values: float) -> torch.Tensor:
        return torch.quantize_per_tensor(floats(*values), 0.1, 0, torch.qint8)

    assert what(quantized(1.0, 2.0), quantized(1.0, 2.0)) == ""
    assert what(quantized(1.0, 2.0), quantized(1.0, 2.5)) == "value"


def test_numbers_are_compared_like_tensors() -> None:
    assert what(1.0, 1.0 + 1e-9) == ""
    assert what(1.0, 1.00001) == "value"
    assert what(1e300, 1e300) == ""
    assert what(NAN, NAN) == ""
    assert what(1.0, NAN) == "nan"


def test_other_values_must_be_equal() -> None:
    assert what(3, 3) == ""
    assert what(3, 4) == "kind"
    assert what(3, 3.0) == "kind"
    assert what(1, True) == "kind"
    assert what(None, None) == ""
    assert what("a", "b") == "kind"


def test_the_first_wrong_value_is_reported() -> None:
    eager = flatten((floats(1.0), [floats(2.0), {"a": floats(3.0)}], 4))
    compiled = flatten((floats(1.0), [floats(2.0), {"a": floats(4.0)}], 5))
    assert first_difference(eager, compiled, None, "output") == Difference(
        "value", "output 2", "1 of 1 out of tolerance, worst 4 instead of 3"
    )
    assert first_difference(eager, eager, None, "output") is None


def test_too_few_values_are_reported() -> None:
    found = first_difference([1, 2], [1], None, "output")
    assert found == Difference("kind", "output", "1 values instead of 2")


def test_each_value_has_its_own_reference() -> None:
    eager, compiled = [floats(1.01), floats(1.01)], [floats(0.99), floats(0.99)]
    exact = [floats(1.0, dtype=torch.float64), floats(1.01, dtype=torch.float64)]
    found = first_difference(eager, compiled, exact, "output")
    assert found is not None
    assert found.where == "output 1"


# -- referees -------------------------------------------------------------------------------

EXACT = floats(1.0, dtype=torch.float64)
NUMBERS = (Referee.DEFAULT, Referee.EAGER, Referee.FP64, Referee.LAYOUT)
"""The referees that compare numbers."""


@pytest.mark.parametrize(
    ("eager", "compiled", "wrong_for"),
    [
        # eager is as far off as the compiled program: only tolerance rejects it
        (1.01, 0.99, {Referee.EAGER}),
        # within tolerance of eager, but eager is exact
        (1.0, 1.00005, {Referee.FP64}),
        (1.0, 1.1, {*NUMBERS}),
        (1.0, NAN, {*NUMBERS, Referee.NAN}),
        (1.0, INF, {*NUMBERS, Referee.NAN}),
        (1.0, 1.0, set()),
    ],
)
def test_referees_differ_in_what_they_accept(
    eager: float, compiled: float, wrong_for: set[Referee]
) -> None:
    minding = {
        referee
        for referee in Referee
        if first_difference(
            [floats(eager)],
            [floats(compiled)],
            None if referee in (Referee.EAGER, Referee.NAN) else [EXACT],
            "output",
            referee,
        )
    }
    assert minding == wrong_for


def test_nan_is_wrong_only_where_eager_has_a_number() -> None:
    def found(eager: torch.Tensor, compiled: torch.Tensor) -> Difference | None:
        return first_difference([eager], [compiled], None, "output", Referee.NAN)

    assert found(floats(1.0, NAN), floats(NAN, NAN)) == Difference(
        "nan", "output 0", "1 of 2 are nan but finite in eager"
    )
    assert found(floats(1.0, INF), floats(5.0, NAN)) is None
    assert found(torch.ones(2), torch.ones(3)) is None
    assert first_difference([3], [4], None, "output", Referee.NAN) is None


@pytest.mark.parametrize(
    ("dtype", "compiled", "times"),
    [
        (torch.float32, 1.00022, 2.0),  # 2.2e-4, of which 1.1e-4 is allowed
        (torch.float32, 2.0, 100.0),
        (torch.bfloat16, 1.25, 14.7),
        (torch.int64, 2.0, 100.0),
    ],
)
def test_an_error_has_a_multiple_of_the_allowed_one(
    dtype: torch.dtype, compiled: float, times: float
) -> None:
    eager = torch.tensor([1.0, 0.0], dtype=dtype)
    found = difference(eager, torch.tensor([compiled, 0.0], dtype=dtype), None, "x")
    assert found is not None
    assert found.times == pytest.approx(times, rel=1e-2)


def test_an_error_is_a_multiple_of_what_float64_allows_if_that_is_more() -> None:
    eager, exact = torch.tensor([1.0, 2.0]), torch.tensor([1.1, 2.0], dtype=torch.float64)
    found = difference(eager, torch.tensor([1.7, 2.0]), exact, "x")
    assert found is not None
    assert found.times == pytest.approx(2.0, rel=1e-3)  # 0.6 from float64, 0.1 in eager
