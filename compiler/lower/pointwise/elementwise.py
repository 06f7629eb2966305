"""Lowerings of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler.ir.arithmetic.index import Index
from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant, times_reciprocal
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.ir.operations import FLOATS, INTEGERS
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site, converted
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor

aten = torch.ops.aten
prims = torch.ops.prims


def _compute(dtype: torch.dtype) -> torch.dtype:
    result = compute_dtype(dtype)
    if result not in FLOATS and result not in INTEGERS and result != torch.bool:
        raise NotLowered(f"kernels do not compute in {dtype}")
    return result


def _map(
    site: Site,
    operands: tuple[Operand, ...],
    function: Callable[..., Expr],
    dtype: torch.dtype | None = None,
) -> Tensor:
    """function(operands), computed in `dtype`, by default that of the result."""
    compute = _compute(dtype or site.dtype)
    elements = [site.operand(o, compute) for o in operands]
    result = site.dtype
    return site.tensor(lambda point: cast(function(*(e(point) for e in elements)), result))


def _same(operand: Expr) -> Expr:
    return operand


def _named(name: str) -> Callable[..., Expr]:
    return lambda *operands: call(name, *operands)


def unary(name: str) -> Lowering:
    """Return an operation of the IR applied to one operand."""

    def lower(site: Site, x: Tensor) -> Tensor:
        return _map(site, (x,), _named(name))

    return lower


def rounding(name: str) -> Lowering:
    """floor, ceil, trunc, round. Integers are unchanged."""

    def lower(site: Site, x: Tensor) -> Tensor:
        return _map(site, (x,), _same if x.dtype in INTEGERS else _named(name))

    return lower


def frac(site: Site, x: Tensor) -> Tensor:
    """x - trunc(x)."""
    return _map(site, (x,), lambda a: call("sub", a, call("trunc", a)))


def binary(name: str) -> Lowering:
    """Return an operation of the IR applied to two operands of the result's dtype."""

    def lower(site: Site, x: Operand, y: Operand) -> Tensor:
        return _map(site, converted(site.dtype, x, y), _named(name))

    return lower


def promoted(x: Operand, y: Operand) -> torch.dtype:
    """Return the promoted dtype of two operands, by torch's rules."""
    return torch.result_type(_sample(x), _sample(y))


def _sample(x: Operand) -> torch.Tensor | bool | int | float:
    """Return a value of the same promotion category: a tensor, a 0-d tensor, or a number."""
    if isinstance(x, Tensor):
        return torch.empty((1,) if x.size else (), dtype=x.dtype, device="meta")
    if isinstance(x, Index):
        return 1
    return x if isinstance(x, bool | int | float) else 1.0


def comparison(name: str) -> Lowering:
    """Return a comparison in the promoted dtype of its operands."""

    def lower(site: Site, x: Operand, y: Operand) -> Tensor:
        dtype = promoted(x, y)
        return _map(site, converted(dtype, x, y), _named(name), dtype)

    return lower


def predicate(name: str) -> Lowering:
    """isnan, isinf, signbit. Integers are neither NaN nor infinite."""

    def lower(site: Site, x: Tensor) -> Tensor:
        if not x.dtype.is_floating_point:
            zero = constant(x.dtype, 0)
            negative = name == "signbit" and x.dtype != torch.bool
            return site.tensor(
                lambda p: (
                    call("lt", x.broadcast(p), zero) if negative else constant(torch.bool, False)
                )
            )
        return _map(site, (x,), _named(name), x.dtype)

    return lower


def logical(name: str) -> Lowering:
    """Return a bitwise operation on truth values, in the promoted dtype: in uint8, 256 is false."""

    def lower(site: Site, *operands: Tensor) -> Tensor:
        common = promoted(*operands) if len(operands) == 2 else operands[0].dtype

        def truth(operand: Tensor, point: tuple[Index, ...]) -> Expr:
            return cast(cast(operand.broadcast(point), common), torch.bool)

        return site.tensor(lambda point: call(name, *(truth(o, point) for o in operands)))

    return lower


def multiply_add(site: Site, x: Operand, y: Operand, z: Operand) -> Tensor:
    """x * y + z. Dynamo writes addcmul and addcdiv of an optimizer with it."""
    return _map(site, (x, y, z), lambda a, b, c: call("add", call("mul", a, b), c))


def add(site: Site, x: Operand, y: Operand, alpha: Operand = 1) -> Tensor:
    """x + alpha * y. For bool it is `or`."""
    if site.dtype == torch.bool:
        return _map(site, (x, y), _named("bitwise_or"))
    return _sum("add", site, x, y, alpha)


def sub(site: Site, x: Operand, y: Operand, alpha: Operand = 1) -> Tensor:
    """x - alpha * y."""
    return _sum("sub", site, x, y, alpha)


def rsub(site: Site, x: Operand, y: Operand, alpha: Operand = 1) -> Tensor:
    """y - alpha * x."""
    return _sum("sub", site, y, x, alpha)


def _sum(name: str, site: Site, x: Operand, y: Operand, alpha: Operand) -> Tensor:
    """x + alpha * y, or x - alpha * y. On a GPU, eager adds numbers to halves in float32."""
    if site.result().device.type != "cuda":
        x, y, alpha = converted(site.dtype, x, y, alpha)
    if alpha == 1:
        return _map(site, (x, y), _named(name))
    return _map(site, (x, y, alpha), lambda a, b, c: call(name, a, call("mul", b, c)))


def mul(site: Site, x: Operand, y: Operand) -> Tensor:
    """x * y. For bool it is `and`."""
    return _map(site, (x, y), _named("bitwise_and" if site.dtype == torch.bool else "mul"))


def div(site: Site, x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """x / y, exact, or rounded toward zero or down.

    On a GPU, eager multiplies by the reciprocal of a number, unless it rounds down.
    """
    by_number = not isinstance(y, Tensor) and site.result().device.type == "cuda"
    quotient = times_reciprocal if by_number else _named("div")
    if rounding_mode is None:
        return _map(site, (x, y), quotient)
    if rounding_mode == "floor":
        return _map(site, (x, y), _named("floor_div"))
    if site.dtype.is_floating_point:
        return _map(site, (x, y), lambda a, b: call("trunc", quotient(a, b)))
    return _map(site, (x, y), _named("trunc_div"))


def fmod(site: Site, x: Operand, y: Operand) -> Tensor:
    """Return the remainder with the sign of x."""
    name = "fmod" if site.dtype.is_floating_point else "trunc_mod"
    return _map(site, converted(site.dtype, x, y), _named(name))


def power(site: Site, x: Operand, y: Operand) -> Tensor:
    """x ** y. Small constant powers use multiplications and roots, as in eager."""
    if not site.dtype.is_floating_point:
        if isinstance(y, int) and not isinstance(y, bool) and 0 <= y <= 4:
            return _map(site, (x,), lambda a: _integer_power(a, y))
        raise NotLowered("integer powers")
    operands = base, exponent = converted(site.dtype, x, y)
    if isinstance(exponent, int | float) and float(exponent) in _POWERS:
        return _map(site, (base,), _POWERS[float(exponent)])
    if base == 2 and isinstance(base, int | float) and site.result().device.type == "cpu":
        return _map(site, (exponent,), _named("exp2"))  # a GPU's is not exact for whole numbers
    return _map(site, operands, _named("pow"))


def _integer_power(a: Expr, exponent: int) -> Expr:
    result = constant(a.dtype, 1)
    for step in range(exponent):
        result = call("mul", result, a) if step else a
    return result


def _reciprocal(a: Expr) -> Expr:
    return call("div", constant(a.dtype, 1.0), a)


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    0.0: lambda a: constant(a.dtype, 1.0),
    1.0: lambda a: a,
    0.5: lambda a: call("sqrt", a),
    2.0: lambda a: call("mul", a, a),
    3.0: lambda a: call("mul", call("mul", a, a), a),
    -0.5: lambda a: call("rsqrt", a),
    -1.0: _reciprocal,
    -2.0: lambda a: _reciprocal(call("mul", a, a)),
}


def reciprocal(site: Site, x: Tensor) -> Tensor:
    """1 / x."""
    return _map(site, (x,), _reciprocal)


def relu(site: Site, x: Tensor) -> Tensor:
    """max(x, 0), with NaN for NaN."""
    return _map(site, (x,), lambda a: call("maximum", a, constant(a.dtype, 0)))


def sign(site: Site, x: Tensor) -> Tensor:
    """-1, 0 or 1. Bools are unchanged."""
    return _map(site, (x,), _same if x.dtype == torch.bool else _named("sign"))


def absolute(site: Site, x: Tensor) -> Tensor:
    """Return the absolute value. Bools and unsigned integers are unchanged."""
    return _map(site, (x,), _same if x.dtype in (torch.bool, torch.uint8) else _named("abs"))


def clamp(site: Site, x: Tensor, low: Operand | None = None, high: Operand | None = None) -> Tensor:
    """min(max(x, low), high). NaN in x or in a bound gives NaN."""
    operands: tuple[Operand, ...] = (x, *(o for o in (low, high) if o is not None))

    def function(a: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        if low is not None:
            a = call("maximum", a, rest.pop(0))
        return call("minimum", a, rest.pop(0)) if high is not None else a

    return _map(site, operands, function)


def where(site: Site, condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """x where the condition holds, else y."""
    chosen, other = (site.operand(value, site.dtype) for value in (x, y))
    return site.tensor(
        lambda p: call("where", condition.broadcast(p, torch.bool), chosen(p), other(p))
    )


def bitwise_not(site: Site, x: Tensor) -> Tensor:
    """Return x with all bits inverted. For bool, this is `not`."""
    return _map(site, (x,), _named("bitwise_not"))


def convert(site: Site, x: Operand, *args: object, **kwargs: object) -> Tensor:
    """Return a copy in the dtype of the result. vmap converts numbers, too."""
    if isinstance(x, Tensor) and x.dtype.is_complex:
        raise NotLowered("a conversion of complex numbers")
    return site.tensor(site.operand(x, site.dtype))


def copy(site: Site, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Return the source, with the size and dtype of x."""
    return convert(site, source)


_FLOAT_UNARY = (
    "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "lgamma",
)  # fmt: skip

TABLE: dict[torch._ops.OpOverload, Lowering] = {
    **{getattr(aten, name).default: unary(name) for name in _FLOAT_UNARY},
    aten.neg.default: unary("neg"),
    aten.abs.default: absolute,
    aten.sign.default: sign,
    aten.floor.default: rounding("floor"),
    aten.ceil.default: rounding("ceil"),
    aten.trunc.default: rounding("trunc"),
    aten.round.default: rounding("round"),
    aten.frac.default: frac,
    aten.isnan.default: predicate("isnan"),
    aten.isinf.default: predicate("isinf"),
    aten.signbit.default: predicate("signbit"),
    aten.reciprocal.default: reciprocal,
    aten.relu.default: relu,
    aten.bitwise_not.default: bitwise_not,
    aten.logical_not.default: logical("bitwise_not"),
    aten.logical_and.default: logical("bitwise_and"),
    aten.logical_or.default: logical("bitwise_or"),
    aten.logical_xor.default: logical("bitwise_xor"),
    aten.add.Tensor: add,
    aten.add.Scalar: add,
    aten.sub.Tensor: sub,
    aten.sub.Scalar: sub,
    aten.rsub.Scalar: rsub,
    aten.rsub.Tensor: rsub,
    aten.mul.Tensor: mul,
    aten.mul.Scalar: mul,
    aten.div.Tensor: div,
    aten.div.Scalar: div,
    aten.div.Tensor_mode: div,
    aten.div.Scalar_mode: div,
    prims.div.default: lambda site, x, y: div(
        site, x, y, rounding_mode=None if site.dtype.is_floating_point else "trunc"
    ),
    aten.floor_divide.default: lambda site, x, y: div(site, x, y, rounding_mode="floor"),
    aten.remainder.Tensor: binary("remainder"),
    aten.remainder.Scalar: binary("remainder"),
    aten.fmod.Tensor: fmod,
    aten.fmod.Scalar: fmod,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Tensor_Scalar: power,
    aten.pow.Scalar: power,
    aten.atan2.default: binary("atan2"),
    aten.hypot.default: binary("hypot"),
    aten.copysign.Tensor: binary("copysign"),
    aten.copysign.Scalar: binary("copysign"),
    aten.maximum.default: binary("maximum"),
    aten.minimum.default: binary("minimum"),
    aten.fmax.default: binary("fmax"),
    aten.fmin.default: binary("fmin"),
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp,
    aten.clamp_min.default: clamp,
    aten.clamp_min.Tensor: clamp,
    aten.clamp_max.default: lambda site, x, high: clamp(site, x, None, high),
    aten.clamp_max.Tensor: lambda site, x, high: clamp(site, x, None, high),
    aten.where.self: where,
    aten.where.ScalarSelf: where,
    aten.where.ScalarOther: where,
    **{
        getattr(getattr(aten, name), form): comparison(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for form in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(aten, name), form): binary(name)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for form in ("Tensor", "Scalar")
    },
    aten.bitwise_left_shift.Tensor: binary("shift_left"),
    aten.bitwise_left_shift.Tensor_Scalar: binary("shift_left"),
    aten.bitwise_right_shift.Tensor: binary("shift_right"),
    aten.bitwise_right_shift.Tensor_Scalar: binary("shift_right"),
    aten.__lshift__.Tensor: binary("shift_left"),
    aten.__lshift__.Scalar: binary("shift_left"),
    aten.__rshift__.Tensor: binary("shift_right"),
    aten.__rshift__.Scalar: binary("shift_right"),
    aten._to_copy.default: convert,
    aten.clone.default: convert,
    aten.copy.default: copy,
    aten.lift_fresh_copy.default: convert,
    prims.convert_element_type.default: convert,
}


LATE: dict[str, Lowering] = {"prims.fma.default": multiply_add}
"""Name -> lowering, for operators that torch registers on first use."""
