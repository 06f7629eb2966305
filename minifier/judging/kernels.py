"""Waits for the kernels of a GPU, and ends a process in which a kernel does not end.

A kernel that does not end cannot be interrupted, and neither can a thread that waits for it.
Another thread therefore watches the device and ends the process.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

import torch

from tcdebug.minifier.judging.endings import ENDLESS

LEAST_SECONDS = 5.0
"""The time before a run is watched, in seconds, including its compile."""
SLOWER = 10.0
"""That time is at least this multiple of the time of eager."""
BUSY_SECONDS = 3.0
"""The device must be busy without a break for this long. While kernels are timed, it has breaks."""
POLL = 0.05


def finish_kernels() -> None:
    """Wait for the kernels of a GPU, so that their errors and hangs occur here."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        torch.cuda.synchronize()


class EndlessKernels:
    """Ends the process with `ENDLESS` if a kernel does not end while this context is active.

    `eager_seconds` is how long eager took for the same work.
    """

    def __init__(self, eager_seconds: float) -> None:
        self._least = max(LEAST_SECONDS, SLOWER * eager_seconds)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
            stream = torch.cuda.current_stream()
            self._thread = threading.Thread(target=self._look, args=(stream,), daemon=True)
            self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self, stream: torch.cuda.Stream) -> None:
        """End the process once the stream has been busy for too long."""
        if self._over.wait(self._least):
            return
        rested = time.monotonic()
        while not self._over.wait(POLL):
            try:
                busy = not stream.query()
            except RuntimeError:  # the error of a kernel, which the caller will see
                return
            if not busy:
                rested = time.monotonic()
            elif time.monotonic() - rested > BUSY_SECONDS:
                os._exit(ENDLESS)
