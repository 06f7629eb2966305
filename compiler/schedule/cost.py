"""What things cost: arithmetic of an expression, bytes of a buffer. Estimates, never semantics."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.expr import Call, Expr, Load, walk
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.ir.index import Extremum, Index, Quotient, Remainder, Symbol

HEAVY = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow",
        "atan2", "fmod", "hypot",
    )
)  # fmt: skip
MEDIUM = frozenset(("div", "sqrt", "rsqrt", "floor_div", "remainder", "trunc_div", "trunc_mod"))

TYPICAL_SIZE = 128
"""What a size symbol is taken for when sizes are compared."""


def arithmetic(expr: Expr) -> int:
    """A weight for computing an expression once: 1 an operation, 3 a division, 8 a function."""
    return sum(_weight(node) for node in walk(expr))


def _weight(node: Expr) -> int:
    if not isinstance(node, Call):
        return 0
    return 8 if node.name in HEAVY else 3 if node.name in MEDIUM else 1


def load_count(expr: Expr) -> int:
    """How many distinct elements an expression reads."""
    return sum(isinstance(node, Load) for node in walk(expr))


def estimate(index: Index) -> int:
    """A number for a size, with TYPICAL_SIZE for what is not known."""
    total = 0
    for monomial, coefficient in index.terms.items():
        term = coefficient
        for atom in monomial:
            match atom:
                case Symbol():
                    term *= TYPICAL_SIZE
                case Quotient():
                    term *= max(1, estimate(atom.numerator) // max(1, estimate(atom.denominator)))
                case Remainder():
                    term *= max(1, estimate(atom.denominator) // 2)
                case Extremum():
                    pick = max if atom.kind == "max" else min
                    term *= pick(estimate(atom.left), estimate(atom.right))
                case _:
                    term *= TYPICAL_SIZE
        total += term
    return total


def itemsize(dtype: torch.dtype) -> int:
    """Bytes of an element."""
    return torch.empty((), dtype=dtype).element_size()


def bytes_of(buffer: Buffer) -> int:
    """An estimate of a buffer's bytes."""
    return estimate(buffer.numel) * itemsize(buffer.dtype)
