"""torch's structured trace of a program at work, without a file: its records become events."""

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
    """Write what torch traces of the compiles in this block to the log."""
    with handled(trace_log, _Handler(log)):
        yield


@contextlib.contextmanager
def handled(logger: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """The logger at work, with one handler more."""
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    """Takes each record as torch makes it; its `metadata` is a dict, its `payload` a text."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self.set_name(TRACING)
        self._translator = Translator(log)

    def emit(self, record: logging.LogRecord) -> None:
        """A record that cannot be read is shown by logging, and ends no compile."""
        try:
            fields = record.__dict__
            self._translator.feed(fields["metadata"], fields.get("payload") or "")
        except Exception:
            self.handleError(record)
