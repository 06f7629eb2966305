"""Waits for the kernels of a GPU, and notices one that does not end.

Such a kernel cannot be interrupted, and neither can a thread that waits for it. Another thread
therefore watches the device and ends the process. A repro script contains this module's text.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

import torch

LEAST_SECONDS = 5.0
"""The time before a run is watched, in seconds, including its compile."""
SLOWER_THAN_EAGER = 10.0
"""That time is at least this multiple of the time of eager."""
BUSY_SECONDS = 3.0
"""The device must be busy without a break for this long. While kernels are timed, it has breaks."""
POLL_SECONDS = 0.05


class Queried(Protocol):
    """A stream of a GPU, such as `torch.cuda.Stream`."""

    def query(self) -> bool:
        """Return whether all its work is done. Raises RuntimeError for an error of a kernel."""


def watch_device(
    end: Callable[[], object], eager_seconds: float, over: threading.Event
) -> threading.Thread | None:
    """Start a thread that calls `end` if a kernel of the calling thread's stream does not end.

    It watches until `over` is set. `eager_seconds` is how long eager took for the same work.
    Returns None if no GPU is in use.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        return None
    least = max(LEAST_SECONDS, SLOWER_THAN_EAGER * eager_seconds)
    arguments = (torch.cuda.current_stream(), end, least, over)
    thread = threading.Thread(target=watch_stream, args=arguments, daemon=True)
    thread.start()
    return thread


def watch_stream(
    stream: Queried, end: Callable[[], object], least: float, over: threading.Event
) -> None:
    """Call `end` once a stream has been busy for too long, but not before `least` seconds."""
    if over.wait(least):
        return
    rested = time.monotonic()
    while not over.wait(POLL_SECONDS):
        try:
            busy = not stream.query()
        except RuntimeError:  # the error of a kernel, which the caller will see
            return
        if not busy:
            rested = time.monotonic()
        elif time.monotonic() - rested > BUSY_SECONDS:
            end()
            return


def finish_kernels() -> None:
    """Wait for the kernels of a GPU, so that their errors and hangs occur here."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        torch.cuda.synchronize()


class EndlessKernels:
    """Calls `end` if a kernel does not end while this context is active.

    `eager_seconds` is how long eager took for the same work.
    """

    def __init__(self, end: Callable[[], object], eager_seconds: float) -> None:
        self._end = end
        self._eager_seconds = eager_seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._thread = watch_device(self._end, self._eager_seconds, self._over)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
