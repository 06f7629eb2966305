"""Judges a value against its reference in eager and float64, and measures its error."""

from __future__ import annotations

import torch

from tcdebug.minifier.cases.case import contents_key
from tcdebug.minifier.judging.compare import (
    EAGER_ERRORS,
    TOLERANCE,
    Difference,
    Referee,
    difference,
    unexpected_nonfinite,
)
from tcdebug.minifier.values.findings import BITWISE
from tcdebug.minifier.values.reference import HALF, NUMBERS, Computed, Unjudged, operator_name

MANY = 64
"""The least number of elements over which errors are averaged."""
ROUNDED = 0.625
"""The error of one rounding in units of the element: half a unit, and an eighth for float32."""
SMALL = 1 / 16
"""Elements below this fraction of the root mean square may be what is left of a cancellation."""
RARE = 200
"""At most one element in RARE of eager may be beyond one rounding."""
OFTEN = 50
"""More than one element in OFTEN of a wrong value is beyond one rounding."""
COMPOSED = frozenset(("glu", "addcmul", "addcdiv"))
"""Operators that inductor lowers to several, which round between them. Eager rounds once."""
NOISES = 2.0
"""The allowed error as a multiple of what drawn roundings of one unit have moved a value by."""
ROUGH = 64.0
"""An error of this many units, and of as many times eager's, is not rounding alone."""
TIES = 10_000
"""Of this many elements behind a comparison, one may fall on the other side of a tie."""


def judged(actual: torch.Tensor, computed: Computed, oracle: str, where: str) -> Difference | None:
    """Return what is wrong with a value; None if it is right. Raises Unjudged."""
    eager = computed.eager
    if not isinstance(eager, torch.Tensor):
        raise Unjudged("not a tensor")
    if eager.shape != actual.shape or eager.dtype != actual.dtype:
        raise Unjudged("laid out differently from its node")
    if oracle == BITWISE:
        return _bitwise(actual, eager, where)
    if not computed.finite:
        actual = with_nonfinite_of(eager, actual)
    exact = computed.exact
    if exact is None and not torch.equal(actual, eager) and oracle in ("default", "fp64"):
        found = difference(eager, actual, None, where)
        if found is None:
            return None
        raise Unjudged("no float64 reference")
    referee = Referee(oracle)
    if referee is Referee.NAN:
        return unexpected_nonfinite(eager, actual, where)
    found = difference(eager, actual, exact, where, referee)
    if found is not None and exact is not None:
        if computed.jumps and _only_ties(actual, eager, exact):
            return None
        if computed.jumps and _nonfinite_in_eager_alone(actual, computed):
            raise Unjudged("a comparison of rounded values decides where eager divides by zero")
        return None if _is_noise(actual, computed) else found
    if found is None and oracle == "default" and exact is not None and not computed.jumps:
        again = not any(operator_name(node.target) in COMPOSED for node in computed.nodes)
        return _too_rough(actual, eager, exact, where, again=again)
    return found


def _nonfinite_in_eager_alone(actual: torch.Tensor, computed: Computed) -> bool:
    """Return whether eager is infinite or NaN for finite values, and the compiled value is not.

    The gradient of a maximum compares its operand with it and divides by how many are equal. That
    is none if the operand is computed again and rounded elsewhere.
    """
    compiled = bool(torch.isfinite(actual).all())
    return computed.finite and compiled and not bool(torch.isfinite(computed.eager).all())


def _is_noise(actual: torch.Tensor, computed: Computed) -> bool:
    """Return whether a value is as far from float64 as roundings to a half type may move it.

    The error of eager is no measure for a few elements: a value that is close to the middle between
    two numbers of the half type is rounded up by one program and down by the other.
    """
    if computed.noise is None or not bool(torch.isfinite(actual).all()):
        return False
    error = float((actual.double() - computed.exact).abs().nan_to_num(torch.inf).max())
    return error <= NOISES * computed.noise()


def with_nonfinite_of(eager: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """Return a value with eager's elements where both are infinite or NaN.

    If what a step reads is infinite already, the order of its operations decides which of the two
    its results are. The mean of a row with an infinity is infinite as a sum, and NaN in Welford's
    algorithm.
    """
    if eager.shape != actual.shape or eager.dtype not in NUMBERS:
        return actual
    return torch.where(torch.isfinite(eager) | torch.isfinite(actual), actual, eager)


def _too_rough(
    actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, where: str, *, again: bool
) -> Difference | None:
    """Find a value of a half type that is in tolerance, but has more rounding than eager.

    `again` says whether a second rounding counts.
    """
    if actual.dtype not in HALF or actual.numel() < MANY:
        return None
    if not all(bool(torch.isfinite(v).all()) for v in (actual, eager, exact)):
        return None
    if (found := _rougher(actual, eager, exact, where)) is not None or not again:
        return found
    return _rounded_again(actual, eager, exact, where)


def _rougher(
    actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, where: str
) -> Difference | None:
    """Find a value of a half type that is further from float64 than eager on the whole.

    A half type's tolerance hides a sum that is rounded after each term, because it is several units
    at the largest magnitude. The root mean square over many elements does not. The multiple of
    eager's error that is allowed is that of judging/compare.py.
    """

    def spread(value: torch.Tensor) -> float:
        return float(value.double().square().mean().sqrt())

    unit = torch.finfo(actual.dtype).eps * spread(exact)
    error, own = spread(actual.double() - exact), spread(eager.double() - exact)
    if unit == 0.0 or error <= max(EAGER_ERRORS * own, unit / 2):
        return None
    detail = f"root mean square error {error / unit:.2g} units, eager's is {own / unit:.2g}"
    return Difference("value", where, detail)


def _rounded_again(
    actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, where: str
) -> Difference | None:
    """Find a value of a half type that was rounded more than once where eager's was rounded once.

    A value that is computed in float32 and rounded once is at most half a unit of its own magnitude
    from float64. If eager's elements are, and many of the compiled ones are not, an operand or an
    intermediate value was rounded too. docs/values.md derives the bounds.
    """
    magnitude = exact.abs()
    typical = magnitude >= magnitude.square().mean().sqrt() * SMALL
    count = int(typical.sum())
    if count < MANY:
        return None
    _, exponent = torch.frexp(magnitude)
    unit = torch.ldexp(torch.full_like(exact, torch.finfo(actual.dtype).eps), exponent - 1)

    def beyond(value: torch.Tensor) -> int:
        return int((((value.double() - exact).abs() > ROUNDED * unit) & typical).sum())

    own, again = beyond(eager), beyond(actual)
    if own * RARE > count or again * OFTEN <= count:
        return None
    detail = (
        f"{again} of {count} elements are further from float64 than one rounding, "
        f"{own} of eager's are"
    )
    return Difference("value", where, detail)


def _bitwise(actual: torch.Tensor, eager: torch.Tensor, where: str) -> Difference | None:
    if digest(actual) == digest(eager):
        return None
    different = (actual != eager) & ~(actual.isnan() & eager.isnan())
    count = int(different.sum())
    detail = f"{count} of {actual.numel()} elements differ in their bits"
    return Difference("bits", where, detail)


def _only_ties(actual: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether few elements differ from both eager and float64.

    Where a comparison falls on a tie, rounding decides, so single elements may differ by any
    amount.
    """
    if actual.dtype.is_floating_point:
        rtol, atol = TOLERANCE.get(actual.dtype, (0.25, 0.25))
        a, e, x = actual.double(), eager.double(), exact.double()
        near = torch.isclose(a, e, rtol, atol, equal_nan=True)
        near |= torch.isclose(a, x, rtol, atol, equal_nan=True)
    else:
        near = (actual == eager) | (actual == exact.to(actual.dtype))
    wrong = int((~near).sum())
    return wrong * TIES <= max(actual.numel(), TIES)


def digest(value: torch.Tensor) -> str:
    """Return a hash of the elements of a tensor; empty if it is not a plain strided one."""
    if value.layout != torch.strided or value.is_quantized:
        return ""
    return contents_key(value.detach().resolve_conj().resolve_neg())


def errors(actual: torch.Tensor, computed: Computed) -> tuple[float | None, float | None]:
    """Return the distances of the value and of eager from float64, in units in the last place.

    A unit is taken at the largest magnitude of the tensor, as in judging/compare.py.
    """
    exact = computed.exact
    if exact is None or not actual.dtype.is_floating_point:
        return None, None
    finite = torch.isfinite(exact)
    if not bool(finite.any()):
        return None, None
    scale = float(exact[finite].abs().max()) * torch.finfo(actual.dtype).eps
    if scale == 0.0:
        return None, None

    def distance(value: torch.Tensor) -> float:
        return float((value.double() - exact)[finite].abs().max()) / scale

    return distance(actual), distance(computed.eager)


def roughness(error: float | None, eager_error: float | None) -> str:
    """Describe an error in tolerance that is many times that of eager; empty if it is not."""
    if error is None or eager_error is None or error < ROUGH * max(eager_error, 1.0):
        return ""
    return f"in tolerance, but its error is {error:.3g} units, eager's is {eager_error:.2g}"
