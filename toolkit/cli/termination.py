"""SIGTERM ends a command as Ctrl-C does, so that a time limit or a scheduler loses no results."""

from __future__ import annotations

import signal
import threading
from types import FrameType

INTERRUPTED = 130
"""Exit status of a command that Ctrl-C or SIGTERM ends."""


def interrupt_on_sigterm() -> None:
    """Let SIGTERM raise KeyboardInterrupt(SIGTERM), unless it is ignored or has a handler."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread sets handlers
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number))
