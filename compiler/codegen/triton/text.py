"""Writes dtypes, literals, indices and operations in Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tcdebug.compiler.codegen.kernels.truncating_text import TruncatingText
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Quotient, Remainder, Symbol
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.arithmetic.order import Extremum
from tcdebug.compiler.ir.expr import Call, Constant, Indirect
from tcdebug.compiler.ir.operations import FLOATS, HALVES, INTEGERS

TYPES: dict[torch.dtype, str] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}

SIGNATURES: dict[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
}

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "trunc_div": "//",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip

TRITON = {
    "exp": "tl.exp", "exp2": "tl.exp2", "rsqrt": "tl.rsqrt", "abs": "tl.abs",
    "floor": "tl.floor", "ceil": "tl.ceil", "where": "tl.where",
}  # fmt: skip
"""Operations of Triton itself. exp, exp2 and rsqrt are those of the hardware, within 2 ulp."""

LIBDEVICE = frozenset(
    (
        "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "trunc", "pow",
        "atan2", "hypot", "fmod", "copysign", "nextafter",
    )
)  # fmt: skip
"""Operations of CUDA's libdevice with the same name."""

LIBRARY = frozenset(
    (
        "philox", "sign", "shift_left", "shift_right", "trunc_mod", "one_plus_erf",
        "float16_quotient", "bfloat16_log",
    )
)  # fmt: skip
"""Operations of `library` with the same name."""

WRITABLE = (
    frozenset(INFIX) | frozenset(TRITON) | LIBDEVICE | LIBRARY
    | {"div", "approximate_div", "neg", "sqrt", "bitwise_not", "isnan", "isinf", "signbit", "round",
       "maximum", "minimum", "fmax", "fmin", "floor_div", "remainder", "cast"}
)  # fmt: skip
"""Every operation of the loop IR that can be written in Triton."""


def literal(constant: Constant) -> str:
    """Return a constant as a Triton scalar of its type."""
    value, dtype = constant.value, constant.dtype
    if dtype in INTEGERS or dtype == torch.bool:
        return f"tl.full([], {int(value)}, {TYPES[dtype]})"
    number = float(value)
    if number == 0 and str(number) == "-0.0":  # tl.full loses the sign of a zero
        return f"{full(0.0, dtype)} * -1.0"
    return full(number, dtype)


def full(number: float, dtype: torch.dtype) -> str:
    """Return a float scalar of a dtype."""
    plain = repr(number) if number - number == 0 else f'float("{number}")'
    return f"tl.full([], {plain}, {TYPES[dtype]})"


class TritonIndex(TruncatingText):
    """Writes indices in Triton. If `data`, axes and sizes are converted to int64."""

    division = "//"
    functions = ("library.index_div", "library.index_mod")

    def __init__(self, places: Mapping[str, str], *, data: bool = False) -> None:
        super().__init__(places)
        self.data = data

    def atom(self, atom: Atom) -> str:
        match atom:
            case Quotient() | Remainder():
                return self.divided(atom)
            case Extremum():
                left, right = render(atom.left, self), render(atom.right, self)
                function = "maximum" if atom.kind == "max" else "minimum"
                return f"tl.{function}({left}, {right})"
            case Indirect():
                return self._widened(self.places[atom.key])
            case Axis() | Symbol():
                return self._widened(atom.name)
        raise TypeError(f"no such atom: {atom!r}")

    def _widened(self, text: str) -> str:
        return f"{text}.to(tl.int64)" if self.data else text


def operation(node: Call, operands: list[str]) -> str:
    """Return an operation on operands that are Triton values."""
    name, source = node.name, node.args[0].dtype
    if name == "cast":
        return cast(operands[0], source, node.dtype)
    if name in INFIX:
        return f"{operands[0]} {INFIX[name]} {operands[1]}"
    if name in SPECIAL:
        return SPECIAL[name](operands, source)
    if name in TRITON:
        return f"{TRITON[name]}({', '.join(operands)})"
    module = "libdevice" if name in LIBDEVICE else "library"
    return f"{module}.{name}({', '.join(operands)})"


def _extreme(name: str, *, nan_wins: bool) -> Callable[[list[str], torch.dtype], str]:
    def write(operands: list[str], dtype: torch.dtype) -> str:
        left, right = operands
        if dtype in FLOATS:
            nan = "ALL" if nan_wins else "NONE"
            return f"tl.{name}({left}, {right}, propagate_nan=tl.PropagateNan.{nan})"
        return f"tl.{name}({left}, {right})"

    return write


def _divided(integers: str, floats: str) -> Callable[[list[str], torch.dtype], str]:
    def write(operands: list[str], dtype: torch.dtype) -> str:
        function = floats if dtype in FLOATS else integers
        return f"library.{function}({', '.join(operands)})"

    return write


SPECIAL: dict[str, Callable[[list[str], torch.dtype], str]] = {
    # Triton computes -x as 0 - x, which loses the sign of a zero
    "neg": lambda o, d: f"{o[0]} * -1.0" if d in FLOATS else f"-{o[0]}",
    # plain division of float32 is within 2 ulp; eager's is correctly rounded
    "div": lambda o, d: f"tl.div_rn({', '.join(o)})" if d == torch.float32 else " / ".join(o),
    # close enough to the quotient of two numbers of bfloat16 to round to the same one
    "approximate_div": lambda o, d: " / ".join(o),
    # tl.sqrt of float32 is approximate, and tl.sqrt_rn takes nothing else
    "sqrt": lambda o, d: f"tl.sqrt{'_rn' if d == torch.float32 else ''}({o[0]})",
    "bitwise_not": lambda o, d: f"{o[0]} == 0" if d == torch.bool else f"~{o[0]}",
    "isnan": lambda o, d: f"{o[0]} != {o[0]}",
    "isinf": lambda o, d: f'tl.abs({o[0]}) == float("inf")',
    "signbit": lambda o, d: f"{o[0]}.to({_bits(d)}, bitcast=True) < 0",
    "round": lambda o, d: f"libdevice.rint({o[0]})",
    "maximum": _extreme("maximum", nan_wins=True),
    "minimum": _extreme("minimum", nan_wins=True),
    "fmax": _extreme("maximum", nan_wins=False),
    "fmin": _extreme("minimum", nan_wins=False),
    "floor_div": _divided("int_floor_div", "floor_div"),
    "remainder": _divided("int_remainder", "remainder"),
}


def _bits(dtype: torch.dtype) -> str:
    return "tl.int64" if dtype == torch.float64 else "tl.int32"


def cast(value: str, source: torch.dtype, target: torch.dtype) -> str:
    """Return a conversion as eager does it."""
    if source == target:
        return value
    if target == torch.bool:
        return f"{value} != 0"
    wide = source == torch.float64 or source in INTEGERS
    if target in HALVES and wide:
        return f"{value}.to(tl.float32).to({TYPES[target]})"
    if source in HALVES and (target == torch.float64 or target in INTEGERS):
        return cast(f"{value}.to(tl.float32)", torch.float32, target)
    if source in FLOATS and target in (torch.int16, torch.int8, torch.uint8):
        return f"{value}.to(tl.int32).to({TYPES[target]})"
    return f"{value}.to({TYPES[target]})"
