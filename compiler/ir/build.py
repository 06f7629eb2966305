"""Builds expressions. Lowerings are written with these functions."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.arithmetic.index import Index
from tcdebug.compiler.ir.expr import Call, Constant, Expr, IndexValue, Number
from tcdebug.compiler.ir.operations import HALVES, result_dtype


def call(name: str, *operands: Expr) -> Expr:
    """Return an operation on operands. Raises UnsupportedOperands if their dtypes are wrong."""
    return Call(result_dtype(name, [o.dtype for o in operands]), name, operands)


def times_reciprocal(value: Expr, divisor: Expr) -> Expr:
    """Return a value times the reciprocal of a divisor."""
    return call("mul", value, call("div", constant(divisor.dtype, 1.0), divisor))


def cast(value: Expr, dtype: torch.dtype) -> Expr:
    """Return a conversion to a dtype. Returns the value if it has the dtype; folds constants.

    A choice between constants becomes one between converted constants, and what converts a bool to
    a number converts it to the dtype: few CPUs convert 64-bit integers in vectors.
    """
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant):
        return constant(dtype, torch.tensor(value.value, dtype=value.dtype).to(dtype).item())
    if isinstance(value, Call) and value.name == "where" and _is_constant(value):
        condition, *branches = value.operands
        return Call(dtype, "where", (condition, *(cast(b, dtype) for b in branches)))
    if isinstance(value, Call) and value.name == "cast" and value.operands[0].dtype == torch.bool:
        return Call(dtype, "cast", value.operands)
    return Call(dtype, "cast", (value,))


def _is_constant(value: Expr) -> bool:
    """Return whether a value is a constant, or a choice between some."""
    if isinstance(value, Call) and value.name == "where":
        return all(map(_is_constant, value.operands[1:]))
    return isinstance(value, Constant)


def constant(dtype: torch.dtype, value: Number) -> Expr:
    """Return a literal, rounded to the dtype as eager rounds it.

    Raises OverflowError if an integer does not fit.
    """
    if dtype == torch.bool:
        return Constant(dtype, bool(value))
    if dtype.is_floating_point:
        return Constant(dtype, torch.tensor(float(value), dtype=dtype).item())
    limits = torch.iinfo(dtype)
    number = int(value)
    if not limits.min <= number <= limits.max:
        raise OverflowError(f"{value} does not fit in {dtype}")
    return Constant(dtype, number)


def index_value(value: Index) -> Expr:
    """Return an index as int64 data."""
    if value.constant is not None:
        return Constant(torch.int64, value.constant)
    return IndexValue(torch.int64, value)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of arithmetic on values of a dtype: float32 for bfloat16 and float16."""
    return torch.float32 if dtype in HALVES else dtype


def all_of(conditions: list[Expr]) -> Expr:
    """Return the conjunction of conditions; true if there are none."""
    result: Expr = Constant(torch.bool, True)
    for position, condition in enumerate(conditions):
        result = call("bitwise_and", result, condition) if position else condition
    return result
