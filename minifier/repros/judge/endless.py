"""Ends a process in which a kernel of a GPU does not end, as `judging/kernels.py` does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import torch

LEAST_SECONDS, SLOWER_THAN_EAGER, BUSY_SECONDS, POLL = 5.0, 10.0, 3.0, 0.05


def watch(report: Callable[[dict[str, str]], None], eager_seconds: float) -> None:
    """Start a thread that reports a hang once the GPU has been busy too long without a break.

    A kernel that does not end cannot be interrupted, so the thread ends the process.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not annotated
        return
    least = max(LEAST_SECONDS, SLOWER_THAN_EAGER * eager_seconds)
    stream = torch.cuda.current_stream()  # each thread has its own
    threading.Thread(target=watch_stream, args=(report, stream, least), daemon=True).start()


def watch_stream(
    report: Callable[[dict[str, str]], None], stream: torch.cuda.Stream, least: float
) -> None:
    """Watch a stream after `least` seconds, which include the compile."""
    time.sleep(least)
    rested = time.monotonic()
    while time.monotonic() - rested < BUSY_SECONDS:
        time.sleep(POLL)
        try:
            if stream.query():
                rested = time.monotonic()
        except RuntimeError:
            return  # the error of a kernel, which the judge sees
    report({"kind": "hang", "what": "a kernel does not end"})
    os._exit(0)
