"""Ends a process in which a kernel of a GPU does not end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from tcdebug.minifier.judging.kernels import watch_device


def watch(report: Callable[[dict[str, str]], None], eager_seconds: float) -> None:
    """Start a thread that reports a hang and ends the process if a kernel does not end."""

    def end() -> None:
        report({"kind": "hang", "what": "a kernel does not end"})
        os._exit(0)

    watch_device(end, eager_seconds, threading.Event())
