"""Writes dtypes, literals, indices, operations and blocks in C++."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from tcdebug.compiler.codegen.halves.half_pairs import JOINED, PAIR, PARTS
from tcdebug.compiler.codegen.halves.half_values import NARROW, rounds
from tcdebug.compiler.codegen.kernels.truncating_text import TruncatingText
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, Quotient, Remainder
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.arithmetic.order import Extremum
from tcdebug.compiler.ir.expr import Call, Constant, Expr, IndexValue, Indirect
from tcdebug.compiler.ir.operations import COMPARISONS, FLOATS, INTEGERS, POLYNOMIALS

TYPES: dict[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
    PAIR: "uint32_t",
}

FUNCTIONS = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
        "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
        "sqrt", "floor", "ceil", "trunc", "round", "abs", "sign", "pow", "atan2", "hypot", "fmod",
        "copysign", "maximum", "minimum", "fmax", "fmin", "shift_left", "shift_right", "philox",
        "nextafter", "zeta", "igamma", "igammac", *POLYNOMIALS,
    )
)  # fmt: skip
"""Operations for which the prelude has a function: the name with an underscore appended."""

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip

Conversions = Mapping[tuple[torch.dtype, torch.dtype], str]
"""Source and target of a conversion -> the function that makes it."""
PLAIN: Conversions = {}
"""Conversions by instructions."""
CHECKED = {
    "floor_div": "int_floor_div",
    "remainder": "int_remainder",
    "trunc_div": "int_trunc_div",
    "trunc_mod": "int_trunc_mod",
}
"""Integer operations that report a zero divisor."""


def literal(constant: Constant) -> str:
    """Return a constant as a C++ literal of its type."""
    value, dtype = constant.value, constant.dtype
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype in FLOATS:
        return _float_literal(float(value), dtype)
    if dtype == torch.bfloat16:
        return f"to_bfloat16({_float_literal(float(value), torch.float32)})"
    if dtype == torch.float16:
        return f"to_float16({_float_literal(float(value), torch.float32)})"
    return f"({TYPES[dtype]}){integer(int(value))}"


def _float_literal(value: float, dtype: torch.dtype) -> str:
    suffix = "f" if dtype == torch.float32 else ""
    if value != value:
        return f'__builtin_nan{suffix}("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = f"{value:.9g}" if suffix else repr(value)
    if "." not in text and "e" not in text:
        text += ".0"
    return f"({text}{suffix})" if text.startswith("-") else text + suffix


def integer(value: int) -> str:
    """Return an integer literal. The smallest int64 has no literal, so it is an expression."""
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"{value}LL" if abs(value) >= 2**31 else str(value)


class CppIndex(TruncatingText):
    """Writes indices in C++."""

    def literal(self, value: int) -> str:
        return integer(value)

    def atom(self, atom: Atom) -> str:
        match atom:
            case Quotient() | Remainder():
                return self.divided(atom)
            case Extremum():
                left, right = render(atom.left, self), render(atom.right, self)
                return f"index_{atom.kind}({left}, {right})"
            case Indirect():
                return self.places[atom.key]
        return super().atom(atom)


def element(text: str, dtype: torch.dtype) -> str:
    """Return the value of an element of an array, or of a pair of elements."""
    if dtype == PAIR:
        return f"load_pair({text})"
    return f"is_true({text})" if dtype == torch.bool else text


def fits_int32(value: Expr) -> bool:
    """Return whether a value is an index, or a number to compare it with, and fits in 32 bits.

    A vector has half as many integers of 64 bits as floats.
    """
    if isinstance(value, Constant):
        return value.dtype == torch.int64 and abs(int(value.value)) < 1 << 31
    bounds = value.index.bounds if isinstance(value, IndexValue) else (None, None)
    known = [abs(b.constant) for b in bounds if b is not None and b.constant is not None]
    return len(known) == 2 and max(known) < 1 << 31


def counts(value: Expr) -> bool:
    """Return whether a value is an index that is never negative and fits in 32 bits."""
    if not isinstance(value, IndexValue) or not fits_int32(value):
        return False
    low, _ = value.index.bounds
    return low is not None and low.constant is not None and low.constant >= 0


def operation(
    node: Call, operands: list[str], *, narrowed: bool = True, conversions: Conversions = PLAIN
) -> str:
    """Return an operation on operands that are C++ expressions.

    Indices that fit in 32 bits are compared and converted as such if `narrowed`. `conversions` are
    made by functions.
    """
    name, dtype = node.name, node.dtype
    source = node.args[0].dtype
    narrows = name in COMPARISONS or (name == "cast" and dtype in FLOATS)
    if narrowed and narrows and all(map(fits_int32, node.args)):
        operands = [f"(int32_t){text}" for text in operands]
        source = torch.int32 if name == "cast" else source
    if name == "cast":
        return cast(operands[0], source, dtype, conversions)
    if name in CHECKED and source in INTEGERS:
        return f"{CHECKED[name]}<{TYPES[dtype]}>({', '.join(operands)}, status)"
    if name in INFIX:
        return _narrow(f"{operands[0]} {INFIX[name]} {operands[1]}", dtype)
    if name in SPECIAL:
        return SPECIAL[name](operands, dtype)
    if name in FUNCTIONS or name in ("floor_div", "remainder"):
        return f"{name}_({', '.join(operands)})"
    if rounds(node) or name == JOINED or name in PARTS:
        return f"{name}({', '.join(operands)})"
    if name == NARROW:
        return f"narrow_to_{TYPES[dtype]}({operands[0]})"
    raise KeyError(f"{name} cannot be written in C++")


def _narrow(text: str, dtype: torch.dtype) -> str:
    """Convert a result back to its type. C++ promotes small integers to int."""
    return f"({TYPES[dtype]})({text})" if dtype in INTEGERS or dtype == torch.bool else text


def _one(dtype: torch.dtype) -> str:
    return "1.0f" if dtype == torch.float32 else "1.0"


MASKED = "masked"
"""`where` by a mask of bits, which g++ does not take for a choice."""
SPECIAL: dict[str, Callable[[list[str], torch.dtype], str]] = {
    "neg": lambda o, d: _narrow(f"-{o[0]}", d),
    "rsqrt": lambda o, d: f"{_one(d)} / sqrt_({o[0]})",
    "bitwise_not": lambda o, d: f"!{o[0]}" if d == torch.bool else _narrow(f"~{o[0]}", d),
    "isnan": lambda o, d: f"{o[0]} != {o[0]}",
    "isinf": lambda o, d: f"abs_({o[0]}) == __builtin_inf()",
    "signbit": lambda o, d: f"sign_bit({o[0]})",
    "where": lambda o, d: (
        f"(bool)(({o[0]} & {o[1]}) | (!{o[0]} & {o[2]}))"  # g++ 12 does not vectorize `?:` of bools
        if d == torch.bool
        else f"{o[0]} ? {o[1]} : {o[2]}"
    ),
    MASKED: lambda o, d: f"blend<{TYPES[d]}>(mask_of<{TYPES[d]}>({o[0]}), {o[1]}, {o[2]})",
}


def cast(
    value: str, source: torch.dtype, target: torch.dtype, conversions: Conversions = PLAIN
) -> str:
    """Return a conversion as eager does it. `conversions` are made by functions."""
    if source == target:
        return value
    if source == torch.bfloat16:
        return cast(f"from_bfloat16({value})", torch.float32, target, conversions)
    if source == torch.float16:
        return cast(f"from_float16({value})", torch.float32, target, conversions)
    if target == torch.bfloat16:
        return f"to_bfloat16({cast(value, source, torch.float32, conversions)})"
    if target == torch.float16:
        return f"to_float16({cast(value, source, torch.float32, conversions)})"
    if target == torch.bool:
        return f"({value} != 0)"
    if source == torch.bool and target in FLOATS:
        # g++ 12 does not vectorize a plain conversion of a comparison of wider elements
        return f"({value} ? {_one(target)} : ({TYPES[target]})0)"
    if (source, target) in conversions:
        return f"{conversions[source, target]}({value})"
    if source in FLOATS and target in (torch.int16, torch.int8, torch.uint8):
        # undefined in C++ if out of range; through int32 it wraps around, as in eager
        return f"({TYPES[target]})(int32_t)({value})"
    return f"({TYPES[target]})({value})"


def index_text(index: Index) -> str:
    """Return an index in C++."""
    return render(index, CppIndex())


def loop(axis: Axis, low: str, high: str, step: int = 1) -> str:
    """Return the head of a loop over an axis, with the variable of its name."""
    name = axis.name
    forward = f"++{name}" if step == 1 else f"{name} += {step}"
    return f"for (int64_t {name} = {low}; {name} < {high}; {forward})"


@dataclass
class Block:
    """Lines of C++ under construction, between braces.

    `opening` is the text before the brace; if empty, there is no brace.
    """

    opening: str = ""
    closing: str = "}"
    items: list[str | Block] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, line: str) -> None:
        """Append a line."""
        self.items.append(line)

    def open(self, opening: str) -> Block:
        """Append a block and return it."""
        block = Block(opening)
        self.items.append(block)
        return block

    def text(self, indent: int = 0) -> str:
        """Return the block as C++."""
        space = "  " * indent
        lines: list[str] = []
        if self.opening:
            lines.append(f"{space}{self.opening} {{")
        inside = indent + bool(self.opening)
        for item in self.items:
            if isinstance(item, Block):
                lines.append(item.text(inside))
            else:
                lines.append("  " * inside + item if not item.startswith("#") else item)
        if self.opening:
            lines.append(f"{space}{self.closing}")
        return "\n".join(lines)
