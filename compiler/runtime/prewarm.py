"""What a compile will need, begun before it is needed, once a process."""

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
    """Call a function in a thread; what it returns is kept for the rest of the process."""
    return _threads().submit(make, *given)


def finished(make: Callable[..., Result], *given: Any) -> Result:
    """The result of a call that was begun, or is now; one that failed is tried again next time."""
    made: Future[Result] = begin(make, *given)
    try:
        return made.result()
    except BaseException:
        begin.cache_clear()
        raise
