"""Pointwise operations, with promotion, broadcasting and edge-case constants."""

from __future__ import annotations

import torch

from tcdebug.strategies.arguments import kind_of
from tcdebug.strategies.devices import CUDA
from tcdebug.strategies.row import Draw, Row, of_one
from tcdebug.strategies.scope import Scope, ScopeValue, Want

FLOATS, INTEGERS, NUMBERS, ALL = "fh", "i", "fhi", "fhib"

CONSTANTS = {
    "f": ("1.0", "2.0", "-1.0", "0.5", "0.0", "3", "-0.0", "1e-40", "3e38",
          "float('inf')", "float('-inf')", "float('nan')", "True"),
    "h": ("1.0", "2.0", "-1.0", "0.5", "0.0", "3", "-0.0", "65504.0", "float('nan')"),
    "i": ("1", "2", "3", "0", "7", "2.5", "True"),
    "b": ("True", "False", "1", "1.5"),
    "c": ("1.0", "2", "1j"),
}  # fmt: skip
"""Python numbers by the kind of the other operand."""

UNARY_ROUNDED = (
    "sin", "cos", "tan", "tanh", "sigmoid", "exp", "exp2", "expm1", "log", "log1p", "log2",
    "log10", "sqrt", "rsqrt", "reciprocal", "erf", "erfc", "lgamma", "asin", "acos", "atan",
    "sinh", "cosh", "asinh", "acosh", "atanh", "square", "erfinv", "digamma", "sinc", "logit", "i0",
    "frac",
)  # fmt: skip
ACTIVATIONS = (
    "gelu", "silu", "softplus", "elu", "hardswish", "hardsigmoid", "mish", "logsigmoid", "selu",
    "leaky_relu", "softsign", "tanhshrink", "celu", "softshrink", "hardtanh",
)  # fmt: skip
UNSURE_OF_NAN = {"celu", "elu", "hardswish", "hardtanh", "selu", "softshrink"}
"""Eager's vectorised and scalar kernels give different gradients for NaN inputs."""
UNSURE_OF_INFINITY = {"gelu"}
"""Eager's vectorised kernel gives NaN for infinity on some CPUs, and its scalar one infinity."""
SIXTH_IN_FLOAT32 = {"hardsigmoid", "hardswish"}
"""Eager's CUDA kernels multiply doubles by a sixth that is rounded to float32.

So does its gradient of hardsigmoid on CPUs.
"""
UNARY_EXACT = ("neg", "abs", "sign", "relu", "floor", "ceil", "trunc", "round", "positive")
TESTS = ("isnan", "isinf", "isfinite", "logical_not")
ARITHMETIC = ("add", "sub", "mul")
ROUNDED = (
    "div", "atan2", "hypot", "pow", "remainder", "fmod", "floor_divide", "logaddexp", "xlogy",
)  # fmt: skip
EXTREMA = ("maximum", "minimum", "fmax", "fmin")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def _finite(x: ScopeValue) -> str:
    """Return nan_to_num with explicit numbers, since its defaults depend on the dtype."""
    if x.tensor.dtype == torch.float64:
        return f"torch.nan_to_num({x})"
    most = torch.finfo(x.tensor.dtype).max
    return f"torch.nan_to_num({x}, 0.0, {most!r}, {-most!r})"


def _activation(name: str) -> Draw:
    def draw(scope: Scope) -> str:
        rounds = name in SIXTH_IN_FLOAT32 and scope.device == CUDA
        rounds |= name == "hardsigmoid" and scope.gradients
        inexact = torch.float64 if rounds else None
        x = scope.operand(Want(FLOATS, accept=lambda t: t.dtype != inexact))
        unsure = name in UNSURE_OF_NAN and scope.gradients and bool(x.tensor.isnan().any())
        unsure |= name in UNSURE_OF_INFINITY and bool(x.tensor.isinf().any())
        operand = _finite(x) if unsure else str(x)
        return f"torch.nn.functional.{name}({operand})"

    return draw


def _other(scope: Scope, x: ScopeValue, kinds: str) -> str:
    """Return the second operand: a tensor, or a Python number."""
    if scope.integer(0, 2) == 2:
        return scope.choose(CONSTANTS[kind_of(x.tensor.dtype)])
    return str(scope.beside(x, kinds))


def binary(name: str, kinds: str) -> Draw:
    """Return a line with two broadcast and promoted operands. torch.sub rejects booleans."""

    def draw(scope: Scope) -> str:
        x = scope.operand(Want(kinds))
        other = _other(scope, x, kinds)
        return f"torch.{name}({x}, {1 if (name, other) == ('sub', 'True') else other})"

    return draw


def tensors(name: str, kinds: str) -> Draw:
    """Return a line as of `binary`, but with tensors only."""

    def draw(scope: Scope) -> str:
        x = scope.operand(Want(kinds))
        return f"torch.{name}({x}, {scope.beside(x, kinds)})"

    return draw


def _signbit(scope: Scope) -> str:
    """Return a line for numbers that have a sign. No standard says which one a computed NaN has."""
    return f"torch.signbit({scope.operand(Want(ALL, accept=lambda t: not bool(t.isnan().any())))})"


def _copysign(scope: Scope) -> str:
    x = scope.operand(Want(FLOATS))
    sign = scope.beside(x, FLOATS)
    return f"torch.copysign({x}, {_finite(sign) if sign.tensor.isnan().any() else sign})"


def _where(scope: Scope) -> str:
    condition = scope.operand(Want("b"))
    x = scope.beside(condition)
    y = scope.alike(x) if scope.flag() else scope.choose(CONSTANTS[kind_of(x.tensor.dtype)])
    return f"torch.where({condition}, {x}, {y})"


def _masked_fill(scope: Scope) -> str:
    x = scope.operand(Want(FLOATS))
    mask = scope.beside(x, "b")
    number = scope.choose(CONSTANTS["f"][:7])
    return f"torch.masked_fill({x}, {mask}, {number})"


def _clamp(scope: Scope) -> str:
    x = scope.operand(Want(NUMBERS))
    low, high = scope.choose((("0", "2"), ("1", "None"), ("None", "3"), ("2", "1")))
    return f"torch.clamp({x}, min={low}, max={high})"


def _cast(scope: Scope) -> str:
    """Return a conversion between dtypes that is defined for every number."""
    x = scope.operand(Want("fhibc"))
    kind = kind_of(x.tensor.dtype)
    names = {
        "f": ("float32", "float64", "bfloat16", "float16", "bool", "complex64"),
        "c": ("complex64",),
    }
    plain = (*names["f"][:5], "int64", "int32", "uint8", "int8", "int16")
    name = scope.choose(names.get("f" if kind in "fh" else kind, plain))
    return f"{x}.to(torch.{name})"


def _to_integers(scope: Scope) -> str:
    x = scope.operand(Want(FLOATS))
    target = scope.choose(("int64", "int32", "uint8", "int8"))
    return f"torch.nan_to_num({x}).clamp(0, 99).to(torch.{target})"


def _three(template: str) -> Draw:
    def draw(scope: Scope) -> str:
        x = scope.operand(Want("f"))
        return template.format(x=x, y=scope.alike(x), z=scope.alike(x))

    return draw


def _alike(name: str) -> Draw:
    def draw(scope: Scope) -> str:
        x = scope.operand(Want("f"))
        return f"torch.{name}({x}, {scope.alike(x)})"

    return draw


def _power(scope: Scope) -> str:
    x = scope.operand(Want(FLOATS))
    return f"torch.pow({x}, {scope.choose(('2', '3', '0.5', '-1', '0', '-2.5'))})"


def _shift(scope: Scope) -> str:
    x = scope.operand(Want(INTEGERS))
    return f"{x} {scope.choose(('<<', '>>'))} {scope.integer(0, 6)}"


def _quotient(scope: Scope) -> str:
    """Return a quotient. Integers may not be divided by zero."""
    x = scope.operand(Want(INTEGERS))
    number = scope.choose((2, 3, -3, 7))
    name = scope.choose(("floor_divide", "remainder", "fmod", "div"))
    return f"torch.{name}({x}, {abs(number) if 'uint' in str(x.tensor.dtype) else number})"


def _rounded_quotient(scope: Scope) -> str:
    x = scope.operand(Want(FLOATS))
    mode = scope.choose(("floor", "trunc"))
    return f"torch.div({x}, {_other(scope, x, FLOATS)}, rounding_mode={mode!r})"


POINTWISE = (
    *(Row(n, binary(n, ALL if n != "sub" else NUMBERS)) for n in ARITHMETIC),
    *(Row(n, of_one(f"torch.{n}({{x}})", Want(NUMBERS)), exact=True) for n in UNARY_EXACT),
    *(Row(n, of_one(f"torch.{n}({{x}})", Want(ALL))) for n in UNARY_ROUNDED[:-1]),
    Row("frac", of_one("torch.frac({x})", Want(FLOATS))),
    *(Row(n, binary(n, FLOATS)) for n in ROUNDED[:1]),
    *(Row(n, tensors(n, FLOATS)) for n in ROUNDED[1:]),
    *(Row(n, _activation(n)) for n in ACTIVATIONS),
    *(Row(n, of_one(f"torch.{n}({{x}})", Want(ALL)), exact=True) for n in TESTS),
    Row("signbit", _signbit, exact=True),
    Row("copysign", _copysign),
    *(Row(n, tensors(n, ALL), exact=True) for n in EXTREMA),
    Row("nextafter", _alike("nextafter"), exact=True),
    *(Row(n, binary(n, ALL), exact=True) for n in COMPARISONS),
    *(Row(n, tensors(n, ALL), exact=True) for n in LOGICAL),
    *(Row(n, tensors(n, "ib"), exact=True) for n in BITWISE),
    Row("bitwise_not", of_one("~{x}", Want("ib")), exact=True),
    Row("shift", _shift, exact=True),
    Row("where", _where, exact=True),
    Row("masked_fill", _masked_fill, exact=True),
    Row("clamp", _clamp, exact=True),
    Row("to", _cast),
    Row("to_integers", _to_integers, exact=True),
    Row("power", _power),
    Row("quotient", _quotient),
    Row("rounded_quotient", _rounded_quotient),
    Row("lerp", _three("torch.lerp({x}, {y}, {z})")),
    Row("addcmul", _three("torch.addcmul({x}, {y}, {z}, value=0.5)")),
    Row("addcdiv", _three("torch.addcdiv({x}, {y}, {z})")),
    Row("nan_to_num", lambda scope: _finite(scope.operand(Want(FLOATS))), exact=True),
    Row("heaviside", _alike("heaviside"), exact=True),
    Row("glu", of_one("torch.nn.functional.glu(torch.cat(({x}, {x})), 0)", Want("f", 1))),
    Row("complex_mul", of_one("{x} * {x}", Want("c"))),
    Row("complex_abs", of_one("torch.abs({x})", Want("c"))),
    Row("real", of_one("torch.view_as_real({x})", Want("c", most=3)), exact=True),
)
