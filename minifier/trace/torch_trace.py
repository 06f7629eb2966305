"""Turns torch's structured trace of a running program into events, without a file."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from torch._logging._internal import trace_log

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.seams import TRACING
from tcdebug.minifier.trace.trace_records import Translator


@contextlib.contextmanager
def traced(log: EventLog) -> Iterator[None]:
    """Write what torch traces about compiles in this block to the log."""
    with handler_added(trace_log, _Handler(log)):
        yield


@contextlib.contextmanager
def handler_added(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Add a handler to a logger for the duration of this block."""
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    """Takes each record that torch makes. Its `metadata` is a dict, its `payload` is text."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self.set_name(TRACING)
        self._translator = Translator(log)

    def emit(self, record: logging.LogRecord) -> None:
        """Translate a record. Logging reports one that cannot be read; the compile continues."""
        try:
            fields = record.__dict__
            self._translator.feed(fields["metadata"], fields.get("payload") or "")
        except Exception:
            self.handleError(record)
