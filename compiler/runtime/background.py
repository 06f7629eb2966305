"""A graph that runs in eager until its kernels, which a thread builds, are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

Compiled = Callable[[list[Any]], Sequence[Any]]

BUILDERS = 2
"""C++ compilers that run at the same time."""


@lru_cache(maxsize=1)
def _builders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(BUILDERS, thread_name_prefix="tcdebug-build")


class Background:
    """Takes its arguments in a list, which it empties.

    What building raises is raised by the first call after it, or handed to `failed` if that is
    given, after which the graph stays in eager. A process forked meanwhile builds for itself.
    """

    def __init__(
        self,
        eager: Callable[..., Sequence[Any]],
        build: Callable[[], Compiled],
        failed: Callable[[Exception], None] | None,
    ) -> None:
        self._eager: Callable[..., Sequence[Any]] | None = eager
        self._build = build
        self._failed = failed
        self._pid = os.getpid()
        self._future: Future[Compiled] = _builders().submit(build)
        self._compiled: Compiled | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._compiled is None and not self._settled():
            given = tuple(args)
            args.clear()
            assert self._eager is not None
            return self._eager(*given)
        assert self._compiled is not None
        return self._compiled(args)

    def _settled(self) -> bool:
        """Whether the compiled graph is there now."""
        if os.getpid() != self._pid and not self._future.done():
            self._pid, self._future = os.getpid(), Future()
            self._future.set_result(self._build())
        if not self._future.done():
            return False
        error = self._future.exception()
        if isinstance(error, Exception) and self._failed is not None:
            self._failed(error)
            self._future = Future()  # never done: the graph stays in eager
            return False
        self._compiled = self._future.result()
        self._eager = None
        return True
