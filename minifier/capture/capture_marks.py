"""Marks captures and passes in a run folder while they last, to detect one that does not end.

It also keeps captures of other threads away while a candidate is judged.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "capturing-"
"""The name of a mark, before the id of the process that captures."""
OWN = "-own"
"""The end of the mark of what a script calls itself. Dynamo may capture meanwhile."""
DYNAMO = "a capture of Dynamo"
"""The text of a mark that says what lasts."""


@dataclass(frozen=True)
class CaptureMarks:
    """Marks the captures of this process in a run folder while `active` returns true."""

    folder: Path
    active: Callable[[], bool]

    def watch(self) -> None:
        """Follow the captures from now on. torch._dynamo.reset() ends this."""
        from torch._dynamo.callback import callback_handler  # noqa: PLC0415 - start-up time

        if self.begin not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(self.begin)
            callback_handler.register_end_callback(self.end)

    def begin(self, args: Any) -> None:
        """Mark that this process captures, if the folder exists. Dynamo calls this."""
        if self.active() and self.folder.is_dir():
            self._mark.write_text(DYNAMO)

    def end(self, args: Any) -> None:
        """Remove the mark. Dynamo calls this."""
        if self.active():
            self._mark.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lasting(self, what: str) -> Iterator[None]:
        """Mark this process while the block runs. A block inside of another changes nothing."""
        mark = self._mark.with_name(f"{self._mark.name}{OWN}")
        if not self.active() or not self.folder.is_dir() or mark.exists():
            yield
            return
        mark.write_text(what)
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.folder / f"{MARK}{os.getpid()}"


@contextlib.contextmanager
def no_other_capture() -> Iterator[None]:
    """Wait until no other thread captures, and make their captures wait until this block ends.

    A candidate that is forked while another thread captures would wait for that capture forever.
    """
    from torch._dynamo.convert_frame import compile_lock  # noqa: PLC0415 - start-up time

    with compile_lock:
        yield


def capturing_for(folder: Path) -> tuple[float, str]:
    """Return the seconds since the earliest one began that has not ended, and what it is.

    If there is none, that is 0. A process that is killed leaves its mark behind.
    """
    now = time.time()
    ages = [(0.0, "")]
    for mark in folder.glob(f"{MARK}*"):
        try:
            ages.append((now - mark.stat().st_mtime, mark.read_text()))
        except FileNotFoundError:  # it has ended just now
            continue
    return max(ages)


def remove_marks(folder: Path) -> None:
    """Remove the marks of processes that have been ended."""
    for mark in folder.glob(f"{MARK}*"):
        mark.unlink(missing_ok=True)
