"""Writes event lines through structlog.

It is a module of its own because importing structlog takes 0.2 s, which a process that logs
nothing need not spend.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import structlog

from tcdebug.compiler.events.event import Event


class _LineFile:
    """Appends whole lines to one file. After a write error it says so once and drops the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seq = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._broken = False

    def write(self, line: bytes, *, sync: bool) -> None:
        if self._broken:
            return
        try:
            os.write(self._fd, line)
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            self._broken = True
            sys.stderr.write(f"tcdebug: the event log stops here: {error} ({self.path})\n")


@lru_cache(maxsize=8)
def _line_file(path: Path, pid: int) -> _LineFile:
    """Return the open file of a path in this process. `pid` makes a forked child open its own."""
    return _LineFile(path)


class EventLogger(structlog.BoundLoggerBase):
    """A structlog logger with a single method, which takes an `Event`."""

    def event(self, event: Event, **context: Any) -> None:
        """Write an event with the bound context and the given context."""
        self._proxy_to_logger("event", event.kind, payload=event, **context)


class _Sink:
    """The logger that structlog calls after the processors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def event(self, line: bytes, *, sync: bool) -> None:
        _line_file(self.path, os.getpid()).write(line, sync=sync)


class _Envelope:
    """A structlog processor that encodes an event with its envelope as one line of JSON."""

    def __init__(self, path: Path, start_ns: int) -> None:
        self.path = path
        self.start_ns = start_ns
        self._encode = msgspec.json.Encoder(enc_hook=str).encode
        self._second = (0, "")

    def __call__(
        self, logger: Any, method: str, entry: MutableMapping[str, Any]
    ) -> tuple[tuple[bytes], dict[str, bool]]:
        payload: Event = entry.pop("payload")
        pid = os.getpid()
        file = _line_file(self.path, pid)
        record: dict[str, Any] = {
            "ts": self._now(),
            "t_ns": time.monotonic_ns() - self.start_ns,
            "seq": file.seq,
            "event": payload.kind,
            "level": payload.level,
            "pid": pid,
        }
        file.seq += 1
        del entry["event"]
        for name, value in entry.items():
            if value is not None and value != "":
                record[name] = value
        record["data"] = payload
        return (self._encode(record) + b"\n",), {"sync": payload.level == "error"}

    def _now(self) -> str:
        second, fraction = divmod(time.time_ns() // 1000, 1_000_000)
        if self._second[0] != second:  # cached: a second often has a thousand events
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second[1]}.{fraction:06}Z"


def event_logger(path: Path, start_ns: int) -> EventLogger:
    """Return a logger that appends to a file.

    `start_ns` is the start of the run, monotonic clock.
    """
    logger: EventLogger = structlog.wrap_logger(
        _Sink(path),
        processors=[_Envelope(path, start_ns)],
        wrapper_class=EventLogger,
        context_class=dict,
    )
    return logger
