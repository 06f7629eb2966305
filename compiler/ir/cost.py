"""Estimates costs: the arithmetic of an expression, the bytes of a buffer.

Estimates only guide choices. They never affect results.
"""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Call, Expr, Load, walk
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.ir.representable import ROUND, ROUND_BITS

HEAVY = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
        "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
        "pow", "atan2", "fmod", "hypot", "floor_div", "remainder", "trunc_div", "trunc_mod",
    )
)  # fmt: skip
"""Functions, and divisions that round, which no processor has for vectors of integers."""
LONGEST_TRANSPOSED_ROW = 128
"""The most elements of a row that a kernel on a CPU transposes as a whole."""
MOST_READ_ACROSS = 4
"""The most elements that a kernel on a CPU reads in one order to store a result in another.

Those that are the same along an axis, such as the statistics of a norm, do not count.
"""
MEDIUM = frozenset(("div", "approximate_div", "sqrt", "rsqrt"))
ROUNDINGS = frozenset((*ROUND.values(), ROUND_BITS))
"""Roundings to half types."""


def arithmetic(expr: Expr) -> int:
    """Return the cost of computing an expression once, in operations.

    A conversion to a half type or back costs 1, a rounding 2, a division 3, a function 8.
    """
    return sum(_weight(node) for node in walk(expr))


def _weight(node: Expr) -> int:
    if not isinstance(node, Call):
        return 0
    if node.name in ROUNDINGS:
        return 2  # as much as the two conversions that it stands for
    return 8 if node.name in HEAVY else 3 if node.name in MEDIUM else 1


GPU_INSTRUCTIONS = {
    "exp": 5, "exp2": 4, "expm1": 28, "log": 26, "log2": 28, "log10": 27, "log1p": 30, "sin": 30,
    "cos": 30, "tan": 35, "asin": 23, "acos": 23, "atan": 20, "sinh": 35, "cosh": 21, "tanh": 15,
    "asinh": 60, "acosh": 60, "atanh": 40, "erf": 14, "one_plus_erf": 14, "erfc": 46, "lgamma": 150,
    "pow": 80, "atan2": 50, "fmod": 50, "hypot": 19, "floor_div": 75, "remainder": 55,
    "trunc_div": 30, "trunc_mod": 30, "div": 12, "approximate_div": 7, "sqrt": 9,
    "rsqrt": 4, "philox": 60, **dict.fromkeys(ROUNDINGS, 2),
}  # fmt: skip
"""Operation -> the instructions of a thread that compute it in float32, if no operand is extreme.

They were counted in the code for compute capability 9.0. Where that has branches for extreme
operands, as those of divisions, of sin or of pow, the rest of it is estimated. `erf` is that of
GELU, which kernels compute with the 1 that is added.
"""
GPU_INSTRUCTIONS_PER_BYTE = 6
"""The instructions that the threads of a GPU execute while it reads or stores a byte.

An H200 issues 4 instructions of 32 threads in each cycle of a multiprocessor, 30e12 in a second,
and moves 4e12 bytes.
"""


def gpu_instructions(expr: Expr) -> int:
    """Return the instructions of a thread of a GPU that compute an expression once.

    Operations that are not in `GPU_INSTRUCTIONS` have one.
    """
    return sum(GPU_INSTRUCTIONS.get(e.name, 1) for e in walk(expr) if isinstance(e, Call))


def has_function(expr: Expr) -> bool:
    """Return whether an expression computes one of HEAVY of a value, not only of an index."""
    left, seen = [expr], set[str]()
    while left:
        node = left.pop()
        if isinstance(node, Call) and node.name in HEAVY:
            return True
        seen.add(node.key)
        left.extend(operand for operand in node.operands if operand.key not in seen)
    return False


def load_count(expr: Expr) -> int:
    """Return the number of distinct elements that an expression reads."""
    return sum(isinstance(node, Load) for node in walk(expr))


def itemsize(dtype: torch.dtype) -> int:
    """Return the size of an element in bytes."""
    return dtype.itemsize


def bytes_of(buffer: Buffer) -> int:
    """Return the estimated size of a buffer in bytes."""
    return estimate(buffer.numel) * itemsize(buffer.dtype)
