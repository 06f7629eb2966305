"""Several calls of a compiled graph in one run.

On a GPU the results may change from call to call: because of a race between threads, or because
CUDA graphs are recorded in the second call and replayed from the third on. Calls cost little once
the graph is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.placement import held_tensors

Results = TypeVar("Results")

LEAST_CALLS, MOST_CALLS = 3, 10
"""The minimum and the maximum of calls of a graph, including the first."""
ENOUGH_SECONDS = 0.5
"""After this time no further call begins, if there were `LEAST_CALLS`."""
MOST_BYTES = 256 << 20
"""Limit on the results that are kept, because other candidates need memory too."""


def can_be_repeated(case: Case) -> bool:
    """Return whether every call of a graph starts from the same state.

    A graph that holds tensors itself may change them.
    """
    return not any(held_tensors(case.module, case.graph))


def results_of_calls(
    call: Callable[[], Results],
    copied: Callable[[Results], Results],
    tensors: Callable[[Results], Sequence[torch.Tensor]],
) -> list[Results]:
    """Return the results of one call and, on a GPU, of further ones.

    They are copies, because the replay of a CUDA graph overwrites earlier results. Raises what a
    call raises. If memory runs out in a further call, the results so far are returned.
    """
    first = call()
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return [first]
    size = sum(tensor.nbytes for tensor in tensors(first))
    kept = [copied(first)]
    began = time.monotonic()
    while len(kept) < MOST_CALLS and size * (len(kept) + 1) <= MOST_BYTES:
        if len(kept) >= LEAST_CALLS and time.monotonic() - began > ENOUGH_SECONDS:
            break
        try:
            kept.append(copied(call()))
        except torch.OutOfMemoryError:  # the results of eager and of earlier calls take memory
            break
    return kept
