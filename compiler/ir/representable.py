"""Finds floats that are numbers of bfloat16 or float16, or that are rounded in fewer steps."""

from __future__ import annotations

import math

import torch

from tcdebug.compiler.ir.expr import Call, Constant, Expr, Guarded, Load
from tcdebug.compiler.ir.operations import FLOATS

ROUND = {torch.bfloat16: "round_to_bfloat16", torch.float16: "round_to_float16"}
"""Half type -> the operation on floats that rounds to it."""
ROUND_BITS = "round_bits_to_bfloat16"
"""The same for a float whose bits can be rounded like those of a number, even if it is a NaN."""
KEEPING = frozenset(
    ("neg", "abs", "floor", "ceil", "trunc", "round", "maximum", "minimum", "fmax", "fmin")
)
"""Operations whose result is a number of the type if all operands are."""
ARITHMETIC = frozenset(
    (
        "add", "sub", "mul", "div", "sqrt", "rsqrt", "sign", "copysign", "cast",
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc",
        "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    )
)  # fmt: skip
"""Operations on floats that return the NaN of an operand, or the one of invalid operations.

The C library and its vectorized functions make it by arithmetic.
"""
NARROW = (torch.bool, torch.int8, torch.uint8)
"""The integers that both types represent exactly."""


class Property:
    """A property of values of a kernel that follows from those of their operands."""

    def __init__(self) -> None:
        self.values: set[str] = set()
        """The nodes of the kernel whose values have the property."""
        self._known: dict[str, bool] = {}

    def holds(self, expr: Expr) -> bool:
        """Return whether the value of an expression has the property."""
        stack = [expr]
        while stack:  # not recursive: a chain can be as long as the graph
            node = stack[-1]
            unknown = [o for o in node.operands if o.key not in self._known]
            if unknown and node.key not in self._known:
                stack.extend(unknown)
                continue
            stack.pop()
            if node.key not in self._known:
                self._known[node.key] = self._from_operands(node)
        return self._known[expr.key]

    def note(self, expr: Expr) -> None:
        """Record that an expression has the property."""
        self._known[expr.key] = True

    def _from_operands(self, node: Expr) -> bool:
        raise NotImplementedError

    def _all(self, *operands: Expr) -> bool:
        return all(self._known[o.key] for o in operands)


class ShortNaN(Property):
    """The floats that are numbers, or NaNs whose last 16 bits are 0, as those of bfloat16.

    Arithmetic gives such a NaN, or that of an operand. Rounding does not carry into its other bits.
    """

    def _from_operands(self, node: Expr) -> bool:
        if node.dtype != torch.float32:
            return node.dtype not in (torch.float16, torch.float64)
        match node:
            case Constant():
                return True
            case Load():
                return not node.index and node.buffer in self.values
            case Guarded():
                return self._all(node.body, node.other)
            case Call(name="where"):
                return self._all(*node.args[1:])
            case Call() if node.name in (ROUND[torch.bfloat16], ROUND_BITS):
                return True
            case Call() if node.name in KEEPING | ARITHMETIC or node.name == ROUND[torch.float16]:
                return self._all(*node.args)
        return False


class Representable(Property):
    """The values of a kernel that are numbers of one half type."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.half = half

    def _from_operands(self, node: Expr) -> bool:
        if node.dtype == self.half:
            return True
        if node.dtype not in FLOATS:
            return node.dtype in NARROW
        match node:
            case Constant():
                return self._is_number(float(node.value))
            case Load(index=()):
                return node.buffer in self.values
            case Guarded():
                return self._all(node.body, node.other)
            case Call(name="where"):
                return self._all(*node.args[1:])
            case Call(name="copysign"):
                return self._all(node.args[0])
            case Call(name="mul"):
                return self._all(*node.args) and any(map(self._keeps_as_factor, node.args))
            case Call(name="add" | "sub"):
                return self._all(*node.args) and self._keeps_as_sum(*node.args)
            case Call(name="cast"):
                return self._all(*node.args)
            case Call(name="sign"):
                return True
            case Call() if node.name in KEEPING:
                return self._all(*node.args)
        return False

    def _is_number(self, value: float) -> bool:
        rounded = torch.tensor(value, dtype=torch.float64).to(self.half).item()
        return rounded == value or math.isnan(value)

    def _keeps_as_sum(self, left: Expr, right: Expr) -> bool:
        """Return whether a sum or difference is a number of the type if both operands are."""
        doubles = self.half == torch.bfloat16 and left.key == right.key
        return doubles or any(isinstance(e, Constant) and e.value == 0 for e in (left, right))

    def _keeps_as_factor(self, factor: Expr) -> bool:
        """Whether a product with a factor is a number of the type if the other factor is one.

        float16 has a smaller range than float. A power of two below 1 makes subnormal numbers,
        which have fewer digits.
        """
        if isinstance(factor, Constant):
            size = abs(float(factor.value))
            doubles = self.half == torch.bfloat16 and math.isfinite(size) and size > 1
            return size in (0, 1) or (doubles and math.frexp(size)[0] == 0.5)
        if not isinstance(factor, Call):
            return False
        return factor.name == "sign" or (
            factor.name == "cast" and factor.args[0].dtype == torch.bool
        )
