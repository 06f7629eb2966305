"""A stream of a GPU that stays busy without a break is noticed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

from tcdebug.minifier.judging import kernels
from tcdebug.minifier.judging.kernels import watch_stream


@dataclass
class Work:
    """A stream that is busy from one time to another, in seconds from its creation."""

    busy: tuple[tuple[float, float], ...]
    error: float = float("inf")
    """The time from which a query raises the error of a kernel."""
    began: float = field(default_factory=time.monotonic)

    def query(self) -> bool:
        """Return whether the stream is idle."""
        now = time.monotonic() - self.began
        if now > self.error:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return not any(first <= now <= last for first, last in self.busy)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BUSY_SECONDS", 0.3)
    monkeypatch.setattr(kernels, "POLL_SECONDS", 0.01)


def noticed(work: Work, least: float = 0.0, seconds: float = 1.0) -> bool:
    """Watch work for some seconds. Return whether the end was called."""
    called, over = threading.Event(), threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.start()
    watch_stream(work, called.set, least, over)
    timer.cancel()
    return called.is_set()


def test_a_stream_that_stays_busy_is_noticed() -> None:
    assert noticed(Work(busy=((0.0, 100.0),)))


def test_a_stream_with_breaks_is_not_noticed() -> None:
    assert not noticed(Work(busy=((0.0, 0.2), (0.25, 0.45), (0.5, 0.7), (0.75, 0.95))))


def test_a_stream_is_not_noticed_before_its_least_time() -> None:
    assert not noticed(Work(busy=((0.0, 100.0),)), least=100.0, seconds=0.6)


def test_the_error_of_a_kernel_is_left_to_the_caller() -> None:
    assert not noticed(Work(busy=((0.0, 100.0),), error=0.1), seconds=100.0)
