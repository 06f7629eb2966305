"""Compares compiled results with eager and a float64 run, as `judging/compare.py` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcdebug.minifier.judging.unwritten import Memory, memory_for_calls, overlook, undefined

Results = Mapping[str, list[Any]]
Layout = Callable[[list[Any], list[Any]], str | None]
TOLERANCES = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
}


def memory_for(
    eager: Results, run_again: Callable[[], Results]
) -> tuple[Memory, Callable[[Results], Results]]:
    """Return what surrounds a compiled call, and what hides results that nothing has written.

    See `unwritten.memory_for_calls` and `unwritten.overlook`.
    """
    elements: dict[str, list[torch.Tensor | None]] = {}

    def same(results: Results) -> bool:
        return not compare(eager, results, None, None)

    def record(*others: Results) -> None:
        elements.update(
            {at: undefined(eager[at], *(other[at] for other in others)) for at in eager}
        )

    def compared(results: Results) -> Results:
        for phase, where in elements.items():
            overlook(where, results.get(phase, []))
        return results

    memory = memory_for_calls(run_again, same, record)
    compared(eager)
    return memory, compared


def compare(
    eager: Results,
    actual: Results,
    exact: Results | None,
    layout: Layout | None,
    *,
    values: bool = True,
) -> str:
    """Return phase and kind of the first difference; empty if there is none.

    With `layout`, strides and shared memory are compared too. Without `values`, only types, dtypes
    and shapes are compared, because values depend on random numbers.
    """
    for phase in eager:
        exacts = exact.get(phase, []) if exact else []
        if len(eager[phase]) != len(actual.get(phase, [])):
            return f"{phase} | wrong kind"
        for k, (e, a) in enumerate(zip(eager[phase], actual[phase], strict=True)):
            found = difference(e, a, exacts[k] if k < len(exacts) else None, values=values)
            if found:
                return f"{phase} | wrong {found}"
    found = layout(eager["forward"], actual["forward"]) if layout else None
    return f"forward | wrong {found}" if found else ""


def difference(eager: Any, actual: Any, exact: Any, *, values: bool = True) -> str | None:
    """Compare a value with eager and a float64 run. Return what is wrong, or None."""
    if isinstance(eager, float) and isinstance(actual, float):
        eager, actual = torch.tensor([eager, actual], dtype=torch.float64)
    if not torch.is_tensor(eager) or not torch.is_tensor(actual):
        return None if type(eager) is type(actual) and (eager == actual or not values) else "kind"
    if eager.dtype != actual.dtype:
        return "dtype"
    if eager.shape != actual.shape:
        return "shape"
    if not values:
        return None
    if eager.is_quantized or eager.layout != torch.strided:
        exact = None
        eager, actual = map(dense, (eager, actual))
    if eager.is_complex():
        eager, actual, exact = map(real, (eager, actual, exact))
    if not eager.is_floating_point():
        return "value" if (eager != actual).any() else None
    return float_difference(eager, actual, exact)


def dense(value: torch.Tensor) -> torch.Tensor:
    """Return a quantized or sparse tensor as a plain one."""
    return value.dequantize() if value.is_quantized else value.to_dense()


def real(value: Any) -> Any:
    """Return the parts of a complex tensor. Other values do not change."""
    if torch.is_tensor(value) and value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value


def float_difference(eager: torch.Tensor, actual: torch.Tensor, exact: Any) -> str | None:
    """Compare floats: by tolerance of eager, then by the distance from the float64 run."""
    e, a = eager.double(), actual.double()
    x = exact.double() if torch.is_tensor(exact) and exact.shape == e.shape else None
    for what, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        differs = test(e) != test(a)
        if x is not None:
            differs &= test(e) == test(x)
        if differs.any():
            return what
    if (torch.isinf(e) & torch.isinf(a) & (e != a)).any():
        return "inf"
    rtol, atol = TOLERANCES.get(eager.dtype, (0.25, 0.25))
    bad = torch.isfinite(e) & torch.isfinite(a) & ((a - e).abs() > atol + rtol * e.abs())
    if x is not None and bad.any() and (known := torch.isfinite(x) & torch.isfinite(e)).any():
        own = (e - x)[known].abs().max().item()
        scale = x[known].abs().max().item()
        times = 4 if eager.dtype in (torch.bfloat16, torch.float16) else 3
        bad &= ~((a - x).abs() <= max(times * own, 4 * torch.finfo(eager.dtype).eps * scale))
    return "value" if bad.any() else None
