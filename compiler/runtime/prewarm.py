"""Starts work for a later stage of a compile in a thread, once per process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="tcdebug-prewarm")


@lru_cache(maxsize=16)
def begin(make: Callable[..., Result], *given: Any) -> Future[Result]:
    """Call a function in a thread and keep its result for the rest of the process."""
    return _threads().submit(make, *given)


def finished(make: Callable[..., Result], *given: Any) -> Result:
    """The result of a call, which starts now if it was not started. Raises what the call raises.

    A failed call is forgotten, so that the next attempt starts it again.
    """
    made: Future[Result] = begin(make, *given)
    try:
        return made.result()
    except BaseException:
        begin.cache_clear()
        raise
