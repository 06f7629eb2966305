"""Several calls of a compiled graph in one run.

On a GPU the results may change from call to call: because of a race between threads, or because
CUDA graphs are recorded in the second call and replayed from the third on. Calls cost little once
the graph is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.placement import held_tensors
from tcdebug.minifier.cases.subclasses.parts import plain_values

Results = TypeVar("Results")

LEAST_CALLS, MOST_CALLS = 3, 100
"""The minimum and the maximum of calls of a graph, including the first."""
ENOUGH_SECONDS = 0.5
"""After this time no further call begins, if there were `LEAST_CALLS`."""
MOST_KEPT = 10
"""The maximum of calls whose results are kept, including the first."""
MOST_BYTES = 256 << 20
"""Limit on the results that are kept, because other candidates need memory too."""


@dataclass(frozen=True)
class NumberedCall(Generic[Results]):
    """The results of a call. Calls are numbered from 1."""

    number: int
    results: Results


def can_be_repeated(case: Case) -> bool:
    """Return whether every call of a graph starts from the same state.

    A graph that holds tensors itself may change them.
    """
    return not any(held_tensors(case.module, case.graph))


def calls_of(
    call: Callable[[], Results],
    copied: Callable[[Results], Results],
    tensors: Callable[[Results], Sequence[torch.Tensor]],
) -> list[NumberedCall[Results]]:
    """Return the first call and, on a GPU, further ones whose results differ from its.

    The results are copies, because the replay of a CUDA graph overwrites earlier results. Raises
    what a call raises. If memory runs out in a further call, the calls so far are returned.
    """
    first = call()
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return [NumberedCall(1, first)]
    size = sum(tensor.nbytes for tensor in tensors(first))
    kept = [NumberedCall(1, copied(first))]
    began = time.monotonic()
    for number in range(2, MOST_CALLS + 1):
        enough = number > LEAST_CALLS and time.monotonic() - began > ENOUGH_SECONDS
        if enough or len(kept) == MOST_KEPT or size * (len(kept) + 1) > MOST_BYTES:
            break
        try:
            again = call()
            if not same_values(tensors(kept[0].results), tensors(again)):
                kept.append(NumberedCall(number, copied(again)))
        except torch.OutOfMemoryError:  # the results of eager and of earlier calls take memory
            break
    return kept


def same_values(first: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> bool:
    """Return whether two calls returned the same values, NaN included.

    A tensor subclass has the values of its parts. Tensors that cannot be compared so, such as
    sparse ones, count as different.
    """
    parts, others = plain_values(first), plain_values(again)
    return len(parts) == len(others) and all(map(_same_part, parts, others))


def _same_part(first: Any, again: Any) -> bool:
    if not isinstance(first, torch.Tensor) or not isinstance(again, torch.Tensor):
        return bool(first == again)
    if (first.shape, first.dtype, first.device) != (again.shape, again.dtype, again.device):
        return False
    if first.layout != torch.strided or first.is_quantized:
        return False
    a, b = first.detach(), again.detach()
    if a.dtype.itemsize == 1:  # floats of 8 bits have no comparison
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    try:
        return bool(((a == b) | ((a != a) & (b != b))).all())
    except (NotImplementedError, TypeError):  # of a class that overrides functions
        return False
