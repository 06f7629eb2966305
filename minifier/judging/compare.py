"""The referee that compares a compiled result with eager and a float64 run.

Integers, booleans and data movement must be exactly equal. A float is wrong if it is out of
tolerance of eager and its distance from a float64 run exceeds a small multiple of eager's own
error. A program may round differently from eager, but not worse. NaN and infinity must be where
they are in eager. `Referee` lists the alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from tcdebug.minifier.cases.subclasses.parts import finished, is_wrapper, parts_of, plain_values

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-7, 1e-9),
}
"""rtol and atol by dtype: those of torch.testing, slightly wider."""

EAGER_ERRORS = 3.0
"""The allowed error as a multiple of eager's own error; 4 for the half types."""
ULPS = 4.0
"""The error that is always allowed, in units in the last place at the scale of the tensor."""
CLEAR = 100.0
"""The most that `Difference.times` can be. Rounding does not explain such an error."""


class Referee(StrEnum):
    """Decides whether a float is wrong. Everything else must equal eager, except under nan.

    default: tolerance of eager, then float64. eager: tolerance alone. fp64: distance from the
    float64 run alone. nan: only NaN or infinity where eager has a number is wrong. layout: as
    default, and strides and shared memory must match eager.
    """

    DEFAULT = "default"
    LAYOUT = "layout"
    EAGER = "eager"
    FP64 = "fp64"
    NAN = "nan"


@dataclass(frozen=True)
class Difference:
    """What is wrong with one value. `what` is one word: dtype, shape, nan, inf, value, kind.

    For differences in memory layout it is strides or aliasing.
    """

    what: str
    where: str
    detail: str
    times: float = field(default=CLEAR, compare=False)
    """The error as a multiple of the allowed one, at most `CLEAR`."""


def first_difference(
    eager: Sequence[Any],
    compiled: Sequence[Any],
    reference: Sequence[Any] | None,
    name: str,
    referee: Referee = Referee.DEFAULT,
    others: Sequence[Any] | None = None,
) -> Difference | None:
    """Return the first wrong value of several; None if all are right.

    `reference` holds the values of a float64 run. Without it, tolerance alone decides. `others`
    holds the values of a run in eager with other roundings: a value must be wrong beside it too.
    """
    if len(eager) != len(compiled):
        return Difference("kind", name, f"{len(compiled)} values instead of {len(eager)}")
    for position, (e, c) in enumerate(zip(eager, compiled, strict=True)):
        r = reference[position] if reference is not None else None
        where = f"{name} {position}"
        found = difference(e, c, r, where, referee)
        if found is None:
            continue
        if others is None or difference(others[position], c, r, where, referee) is not None:
            return found
    return None


def same_bits(eager: Sequence[torch.Tensor], compiled: Sequence[torch.Tensor]) -> bool:
    """Return whether all floats of these tensors are equal, NaN included."""
    return all(
        torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)
        for a, b in zip(plain_values(eager), plain_values(compiled), strict=False)
        if isinstance(a, torch.Tensor)
        if a.dtype.is_floating_point and a.layout == b.layout == torch.strided
    )


def unexpected_nonfinite(eager: Any, compiled: Any, where: str) -> Difference | None:
    """Find NaN or infinity in a compiled tensor where eager has a number; None if there is none."""
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return None
    if is_wrapper(eager):
        return _part_difference(eager, compiled, None, where, Referee.NAN)
    if eager.shape != compiled.shape:
        return None
    if eager.layout != torch.strided or eager.is_quantized:
        eager, compiled = _dense(eager), _dense(compiled)
    number = torch.isfinite(eager)
    for what, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        count = int((number & test(compiled)).sum())
        if count:
            detail = f"{count} of {eager.numel()} are {what} but finite in eager"
            return Difference(what, where, detail)
    return None


def difference(
    eager: Any,
    compiled: Any,
    reference: Any,
    where: str,
    referee: Referee = Referee.DEFAULT,
) -> Difference | None:
    """Return what is wrong with a compiled value; None if it is right."""
    eager, compiled, reference = map(finished, (eager, compiled, reference))
    if referee is Referee.NAN:
        return unexpected_nonfinite(eager, compiled, where)
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return _scalar_difference(eager, compiled, where)
    if is_wrapper(eager) or is_wrapper(compiled):
        return _part_difference(eager, compiled, reference, where, referee)
    if eager.dtype != compiled.dtype:
        return Difference("dtype", where, f"{compiled.dtype} instead of {eager.dtype}")
    if eager.shape != compiled.shape:
        return Difference("shape", where, f"{tuple(compiled.shape)}, not {tuple(eager.shape)}")
    if eager.layout != torch.strided or eager.is_quantized:
        eager, compiled, reference = _dense(eager), _dense(compiled), None
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        return _exact_difference(eager, compiled, where)
    return _float_difference(eager.detach(), compiled.detach(), reference, where, referee)


def _part_difference(
    eager: torch.Tensor, compiled: torch.Tensor, reference: Any, where: str, referee: Referee
) -> Difference | None:
    """Return the first difference between the parts of tensors that are made of others.

    Distributed tensors that are split in different ways have no equal parts, and are not compared.
    """
    if type(eager) is not type(compiled):
        names = [type(value).__name__ for value in (compiled, eager)]
        return Difference("kind", where, f"{names[0]} instead of {names[1]}")
    if getattr(eager, "placements", None) != getattr(compiled, "placements", None):
        return None
    (names, parts), (others, made) = parts_of(eager), parts_of(compiled)
    if names != others:
        return Difference("kind", where, f"parts {others} instead of {names}")
    exact = parts_of(reference)[1] if type(reference) is type(eager) else [None] * len(names)
    for name, one, other, wide in zip(names, parts, made, exact, strict=True):
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            found = difference(one, other, wide, f"{where}.{name}", referee)
            if found is not None:
                return found
    return None


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value.dequantize() if value.is_quantized else value.to_dense()


def _scalar_difference(eager: Any, compiled: Any, where: str) -> Difference | None:
    if isinstance(eager, float) and isinstance(compiled, float):
        pair = torch.tensor([eager, compiled], dtype=torch.float64)
        return _float_difference(pair[0], pair[1], None, where)
    same = type(eager) is type(compiled) and bool(eager == compiled)
    return None if same else Difference("kind", where, f"{compiled!r} instead of {eager!r}")


def _exact_difference(eager: torch.Tensor, compiled: torch.Tensor, where: str) -> Difference | None:
    wrong = eager != compiled
    count = int(wrong.sum())
    if count == 0:
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    detail = f"{count} of {eager.numel()} differ, first at {place}: "
    return Difference("value", where, detail + f"{compiled[place]} instead of {eager[place]}")


def _float_difference(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: Any,
    where: str,
    referee: Referee = Referee.DEFAULT,
) -> Difference | None:
    if eager.dtype.is_complex:
        eager, compiled = _real(eager), _real(compiled)
        if isinstance(reference, torch.Tensor) and reference.dtype.is_complex:
            reference = _real(reference)
    if torch.equal(eager, compiled):
        return None
    dtype = eager.dtype
    e, c = eager.double(), compiled.double()
    ref = reference if isinstance(reference, torch.Tensor) else None
    ref = ref.double() if ref is not None and ref.shape == e.shape else None
    special = _special_difference(e, c, ref, where)
    if special is not None:
        return special
    rtol, atol = TOLERANCE.get(dtype, (0.25, 0.25))  # 8-bit floats have as few as 2 mantissa bits
    finite = torch.isfinite(e) & torch.isfinite(c)
    error = torch.where(finite, (c - e).abs(), torch.zeros_like(e))
    times = error / (atol + rtol * e.abs())
    if ref is not None:
        of_float64 = _times_allowed_error(e, c, ref, dtype)
        fp64 = referee is Referee.FP64
        times = torch.where(finite, of_float64, 0.0) if fp64 else times.minimum(of_float64)
    wrong = times > 1.0
    count = int(wrong.sum())
    if count == 0:
        return None
    place = tuple(torch.where(wrong, error, -1.0).flatten().argmax().reshape(1).tolist())
    got, wanted = c.flatten()[place].item(), e.flatten()[place].item()
    detail = f"{count} of {e.numel()} out of tolerance, worst {got:.9g} instead of {wanted:.9g}"
    return Difference("value", where, detail, min(float(times[wrong].max()), CLEAR))


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.detach().resolve_conj())


def _special_difference(
    e: torch.Tensor, c: torch.Tensor, ref: torch.Tensor | None, where: str
) -> Difference | None:
    """Return a difference in NaN or infinity where eager and float64 agree."""
    for what, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        differs = test(e) != test(c)
        if ref is not None:
            differs &= test(e) == test(ref)
        if bool(differs.any()):
            return Difference(what, where, f"{int(differs.sum())} of {e.numel()} differ in {what}")
    opposite = torch.isinf(e) & torch.isinf(c) & (e != c)
    if bool(opposite.any()):
        return Difference("inf", where, f"{int(opposite.sum())} infinities have the opposite sign")
    return None


def _times_allowed_error(
    e: torch.Tensor, c: torch.Tensor, ref: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return each error as a multiple of what eager's error and the format allow.

    It is infinite where nothing is known about the allowed error.
    """
    finite = torch.isfinite(ref) & torch.isfinite(e)
    error = (c - ref).abs()
    if not bool(finite.any()):
        return torch.full_like(e, torch.inf)
    scale = float(ref[finite].abs().max())
    own = float((e - ref)[finite].abs().max())
    factor = EAGER_ERRORS + (dtype in (torch.bfloat16, torch.float16))
    allowed = max(factor * own, ULPS * torch.finfo(dtype).eps * scale)
    times = torch.where(error == 0.0, 0.0, error / allowed)
    return times.nan_to_num(nan=torch.inf, posinf=torch.inf)
