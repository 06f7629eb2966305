"""Runs a graph in eager with other roundings to half types, to learn what error rounding explains.

How far eager is from float64 bounds the error of a program that rounds elsewhere. For many elements
this bound is reliable. A loss is one number, whose error may happen to be close to zero in eager,
although its model computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from tcdebug.minifier.judging.reference.widened_dtypes import WIDER

HALF = (torch.bfloat16, torch.float16)
FEW = 64
"""Eager's error in fewer elements than this does not bound that of another program."""
DRAWS = 8
"""How often other roundings are drawn."""


def furthest_of_roundings(
    eager: Sequence[Any], exact: Sequence[Any], again: Callable[[], Sequence[Any]]
) -> list[Any]:
    """Return the results of eager with small float32 tensors replaced by those of other roundings.

    `again` runs the graph in eager once more. Of several draws, that which is furthest from float64
    counts. The results are equal to eager's if nothing is rounded to a half type.
    """
    furthest = list(eager)
    places = [k for k, (e, x) in enumerate(zip(eager, exact, strict=False)) if _is_small(e, x)]
    if not places:
        return furthest
    for seed in range(DRAWS):
        try:
            with _OtherRoundings(seed) as mode:
                drawn = again()
        except Exception:  # a dispatch mode breaks some higher-order operators
            break
        if not mode.changed or len(drawn) != len(eager):
            break
        for k in places:
            if _distance(drawn[k], exact[k]) > _distance(furthest[k], exact[k]):
                furthest[k] = drawn[k]
    return furthest


def _is_small(eager: Any, exact: Any) -> bool:
    if not isinstance(eager, torch.Tensor) or not isinstance(exact, torch.Tensor):
        return False
    wide = eager.dtype in (torch.float32, torch.float64)
    return wide and 0 < eager.numel() < FEW and eager.shape == exact.shape


def _distance(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float((value.double() - exact.double()).abs().nan_to_num(0.0, 0.0, 0.0).max())


class _OtherRoundings(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no annotation
    """Rounds results of half types up or down by a unit where an operator rounds."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no annotation
        self.changed = False
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and change what it rounds."""
        made = func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload) or func._schema.is_mutable:
            return made
        results = made if isinstance(made, tuple | list) else (made,)
        halves = any(isinstance(r, torch.Tensor) and r.dtype in HALF for r in results)
        if not halves or torch.Tag.nondeterministic_seeded in func.tags:
            return made
        try:
            exact = func(*map_aggregate(tuple(args), _wider), **map_aggregate(kwargs or {}, _wider))
        except Exception:  # an operator without a float64 kernel
            return made
        wide = exact if isinstance(exact, tuple | list) else (exact,)
        for one, other in zip(results, wide, strict=True):
            if isinstance(one, torch.Tensor) and one.dtype in HALF:
                self._change(one, other)
        return made

    def _change(self, made: torch.Tensor, exact: torch.Tensor) -> None:
        """Move the elements that are rounded by one unit, zero, or minus one."""
        rounded = (made.double() != exact) & made.isfinite()
        if not bool(rounded.any()):
            return  # moved data, which may share memory with an operand
        self.changed = True
        units = torch.randint(-1, 2, made.shape, generator=self._generator).to(made.device)
        moved = made.double() * (1 + units * torch.finfo(made.dtype).eps)
        made.copy_(torch.where(rounded, moved, made.double()))


def _wider(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value
