"""Marks captures and passes in a run folder while they last, to detect one that does not end.

It also keeps captures of other threads away while a candidate is judged.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcdebug.minifier.cases.layer_names import CAPTURE
from tcdebug.minifier.cases.user_frames import frames, innermost

MARK = "capturing-"
"""The name of a mark, before the id of the process that captures."""
OWN = "-own"
"""The end of the mark of what a script calls itself. Dynamo may capture meanwhile."""
LOCATABLE = "says where it is"
"""The second line of the mark of a process that answers `LOCATE`."""
LOCATE = signal.SIGRTMIN + 9
"""The signal on which a process writes which line of the program Dynamo is capturing."""
PLACE = "place-"
"""The beginning of the name of the file with that line and the stack that leads to it."""
ASKED_EVERY = 2.0
"""Seconds between two such questions, and until the first."""


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
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(LOCATE)
        ours = getattr(handler, "__func__", None) is CaptureMarks._locate
        if main and (handler == signal.SIG_DFL or ours):
            signal.signal(LOCATE, self._locate)

    def begin(self, args: Any) -> None:
        """Mark that this process captures, if the folder exists. Dynamo calls this."""
        if self.active() and self.folder.is_dir():
            answers = signal.getsignal(LOCATE) == self._locate
            self._mark.write_text(f"{CAPTURE}\n{LOCATABLE}" if answers else CAPTURE)

    def end(self, args: Any) -> None:
        """Remove the mark. Dynamo calls this."""
        if self.active():
            self._mark.unlink(missing_ok=True)
            self._place.unlink(missing_ok=True)

    def _locate(self, number: int, frame: Any) -> None:
        """Write where Dynamo is. Errors stay here: this interrupts the program at any place."""
        from torch._guards import TracingContext  # noqa: PLC0415 - start-up time

        with contextlib.suppress(Exception):
            stack = "".join(TracingContext.extract_stack().format())
            if (place := innermost(list(frames(stack)))) is not None:
                written = self._place.with_suffix(".new")
                written.write_text(f"{place}\n{stack}")
                written.rename(self._place)

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

    @property
    def _place(self) -> Path:
        return self.folder / f"{PLACE}{os.getpid()}"


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
            ages.append((now - mark.stat().st_mtime, mark.read_text().partition("\n")[0]))
        except FileNotFoundError:  # it has ended just now
            continue
    return max(ages)


@dataclass
class Patience:
    """Decides when a capture or a pass counts as endless, and finds out where a capture is."""

    folder: Path
    seconds: float
    """The limit on any of them."""
    still: float
    """The limit on a capture that stays at one line of the program, in the same calls."""
    place: str = ""
    """The line at which a capture was when it was last asked, as FILE:N in FUNCTION: CODE."""
    stays: bool = False
    """Whether a capture has been at that line for `still` seconds."""
    _stack: str = ""
    _since: float = 0.0
    _asked: float = 0.0

    def endless(self) -> str:
        """Return what counts as endless by now; empty if nothing does."""
        seconds, what = capturing_for(self.folder)
        if seconds < ASKED_EVERY:
            return ""
        now = time.monotonic()
        if now - self._asked > ASKED_EVERY:
            self._follow(now)
            self._asked = now
            self._ask()
        self.stays = bool(self._stack) and now - self._since > self.still
        return what if self.stays or seconds > self.seconds else ""

    def _follow(self, now: float) -> None:
        """Read the answer to the last question."""
        stacks = [file.read_text() for file in self.folder.glob(f"{PLACE}*") if not file.suffix]
        stack = next(iter(stacks), "")
        if stack != self._stack:
            self._stack, self._since = stack, now
        self.place = stack.partition("\n")[0]

    def _ask(self) -> None:
        for mark in self.folder.glob(f"{MARK}*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if LOCATABLE in mark.read_text():
                    os.kill(int(mark.name.removeprefix(MARK)), LOCATE)


def remove_marks(folder: Path) -> None:
    """Remove the marks of processes that have been ended."""
    for pattern in (MARK, PLACE):
        for mark in folder.glob(f"{pattern}*"):
            mark.unlink(missing_ok=True)
