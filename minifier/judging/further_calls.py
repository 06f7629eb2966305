"""Further calls of a graph that was right in its first call.

On a GPU, results may change from call to call because of a race between threads, or because CUDA
graphs are recorded in the second call and replayed from the third on. Calls cost little once the
graph is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch

from tcdebug.minifier.cases.outcome import Outcome

Results = TypeVar("Results")

LEAST_CALLS, MOST_CALLS = 3, 10
"""The least number of calls of a graph, including the first, and the most if they are fast."""
ENOUGH_SECONDS = 0.5
"""After this many seconds and `LEAST_CALLS`, no further call starts."""


def judged_calls(
    first: Results, again: Callable[[], Results], judge: Callable[[Results], Outcome]
) -> Outcome:
    """Judge the results of a first call and, on a GPU, of further calls until one fails.

    Raises what a call raises. Running out of memory ends the calls instead, because the results of
    eager take memory.
    """
    found = judge(first)
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return found
    began = time.monotonic()
    for call in range(2, MOST_CALLS + 1):
        if found.failed or (call > LEAST_CALLS and time.monotonic() - began > ENOUGH_SECONDS):
            break
        try:
            found = judge(again())
        except torch.OutOfMemoryError:
            break
        if found.failed:
            found = replace(found, message=f"{found.message}, in call {call}")
    return found
