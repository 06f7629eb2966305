"""Waiting for the kernels of a GPU, and ending a process in which one does not end.

A kernel that does not end cannot be interrupted: whoever waits for it waits as long. So a thread
looks at the device meanwhile, and ends the process.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

import torch

from tcdebug.minifier.judging.endings import ENDLESS

LEAST_SECONDS = 5.0
"""No run is looked at before it has taken so long, its compile included."""
SLOWER = 10.0
"""Nor before it has taken this many times the seconds of eager."""
BUSY_SECONDS = 3.0
"""So long the device has to be busy without a break. While kernels are timed, it rests at times."""
POLL = 0.05


def finish_kernels() -> None:
    """Wait for the kernels of a GPU: what fails or hangs in one does so here. Raises its error."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        torch.cuda.synchronize()


class EndlessKernels:
    """While this context lasts, a kernel that does not end ends the process, with `ENDLESS`.

    `eager_seconds` is how long eager took for the same.
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
            except RuntimeError:  # an error of a kernel, which the caller will see
                return
            if not busy:
                rested = time.monotonic()
            elif time.monotonic() - rested > BUSY_SECONDS:
                os._exit(ENDLESS)
