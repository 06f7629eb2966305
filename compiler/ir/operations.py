"""The scalar operations of the loop IR: names, operand counts and result dtypes.

The operands of an operation have one dtype, except for `where`; see `result_dtype`. Lowerings
write every conversion as a `cast`. `interpreter.MEANING` defines what an operation computes;
`codegen/cpp/emitters/text.py` writes it in C++.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FLOAT_UNARY = (
    "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "lgamma", "floor", "ceil", "trunc", "round",
)  # fmt: skip
POLYNOMIALS = (
    "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he",
    "laguerre_l", "legendre_p",
)  # fmt: skip
"""Orthogonal polynomials. Operands: x, and the degree, whose fraction is dropped."""
FLOAT_BINARY = (
    "div", "approximate_div", "pow", "atan2", "fmod", "hypot", "copysign", "fmax", "fmin",
    "nextafter", "zeta", "igamma", "igammac", *POLYNOMIALS,
)  # fmt: skip
NUMBER_UNARY = ("neg", "abs", "sign")
NUMBER_BINARY = ("add", "sub", "mul", "maximum", "minimum", "floor_div", "remainder")
INTEGER_BINARY = ("trunc_div", "trunc_mod", "shift_left", "shift_right")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
PREDICATES = ("isnan", "isinf", "signbit")

OPERATIONS: dict[str, int] = {
    **dict.fromkeys((*FLOAT_UNARY, *NUMBER_UNARY, *PREDICATES, "bitwise_not", "cast"), 1),
    **dict.fromkeys((*FLOAT_BINARY, *NUMBER_BINARY, *INTEGER_BINARY, *BITWISE, *COMPARISONS), 2),
    "where": 3,
    "philox": 3,
}

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin")
"""Reductions of the loop IR. max and min propagate NaN. argmax and argmin take the first of equal
elements, and for them NaN is both the largest and the smallest value, as in eager."""

SCANS = {
    "cumsum": "sum",
    "cumprod": "prod",
    "cummax": "last_max",
    "cummin": "last_min",
    "cumargmax": "last_argmax",
    "cumargmin": "last_argmin",
    "logcumsumexp": "log_sum_exp",
    "argsort": "argsort",
    "argsort_down": "argsort_down",
}
"""Scan of the loop IR -> the operation that it accumulates with. It keeps every state.

Among equal elements the last one wins. NaN wins over everything but a later NaN. The sorts do not
accumulate: each point has the place of the element that comes there, NaN as the largest. Equal
elements keep their order."""
SORTS = ("argsort", "argsort_down")


def gives_place(kind: str) -> bool:
    """Return whether the result of a reduction or scan is a position instead of a value."""
    return "arg" in kind


FLOATS = (torch.float32, torch.float64)
"""The floating-point dtypes of arithmetic. `HALVES` are converted before and after."""

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
HALVES = (torch.bfloat16, torch.float16)
"""The floating-point dtypes of 16 bits."""

STORABLE = (*FLOATS, *HALVES, *INTEGERS, torch.bool)
"""The dtypes that kernels read and write. Other dtypes are left to extern calls."""


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """Return the neutral element of a reduction of values of a dtype."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    smallest_wins = kind.endswith("min")
    if dtype in FLOATS:
        return float("inf") if smallest_wins else float("-inf")
    if dtype == torch.bool:
        return smallest_wins
    limits = torch.iinfo(dtype)
    return limits.max if smallest_wins else limits.min


class UnsupportedOperands(TypeError):
    """An operation does not take operands of these dtypes, or not this many."""


def result_dtype(name: str, operands: Sequence[torch.dtype]) -> torch.dtype:
    """Return the result dtype of an operation other than a cast.

    Raises UnsupportedOperands if the operation does not take these operands.
    """
    if OPERATIONS.get(name) != len(operands) or name == "cast":
        raise UnsupportedOperands(f"{name} does not take {len(operands)} operands")
    if name == "where":
        if operands[0] != torch.bool or operands[1] != operands[2]:
            raise UnsupportedOperands(f"where takes a bool and two equal dtypes, not {operands}")
        return operands[1]
    if name == "philox" and set(operands) != {torch.int64}:
        raise UnsupportedOperands(f"philox takes three int64 operands, not {operands}")
    if len(set(operands)) != 1:
        raise UnsupportedOperands(f"{name} takes operands of one dtype, not {operands}")
    dtype = operands[0]
    if not _takes(name, dtype):
        raise UnsupportedOperands(f"{name} does not take {dtype}")
    return torch.bool if name in COMPARISONS or name in PREDICATES else dtype


def _takes(name: str, dtype: torch.dtype) -> bool:
    if name in FLOAT_UNARY or name in FLOAT_BINARY or name in PREDICATES:
        return dtype in FLOATS
    if name in NUMBER_UNARY or name in NUMBER_BINARY:
        return dtype in FLOATS or dtype in INTEGERS
    if name in INTEGER_BINARY:
        return dtype in INTEGERS
    if name in BITWISE or name == "bitwise_not":
        return dtype in INTEGERS or dtype == torch.bool
    return dtype in FLOATS or dtype in INTEGERS or dtype == torch.bool  # comparisons
