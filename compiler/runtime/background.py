"""Runs a graph in eager until a thread has built its kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

Compiled = Callable[[list[Any]], Sequence[Any]]

BUILDERS = 2
"""The most builds that run at the same time."""


@lru_cache(maxsize=1)
def _builders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(BUILDERS, thread_name_prefix="tcdebug-build")


class Background:
    """A graph that takes its arguments in a list, which it empties.

    An exception of the build is raised by the next call, or passed to `failed` if that is given;
    then the graph stays in eager. A process that is forked during the build builds for itself.
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
        """Return whether the compiled graph is ready. Raises the exception of the build."""
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
