"""Identifies an exception, as `cases/outcome.py` does."""

from __future__ import annotations

import traceback
from typing import Any

from tcdebug.minifier.cases.messages import first_line, normalised, short_file


def exception_result(error: BaseException) -> dict[str, Any]:
    """Return the class of an exception's cause, its message without numbers, and its frame."""
    while cause := getattr(error, "inner_exception", None) or error.__cause__:
        error = cause
    frame = ""
    if trace := traceback.extract_tb(error.__traceback__):
        frame = f"{short_file(trace[-1].filename)}:{trace[-1].name}"
    return {
        "class": type(error).__name__,
        "message": first_line(str(error))[:300],
        "what": normalised(str(error)),
        "frame": frame,
    }
