"""Identifies an exception by what is equal in all runs."""

from __future__ import annotations

from typing import Any

from tcdebug.minifier.cases.exception_identity import (
    first_line,
    innermost_frame,
    normalised,
    root_cause,
    with_compiler_error,
)


def exception_result(error: BaseException) -> dict[str, Any]:
    """Return the class of an exception's cause, its message without numbers, and its frame."""
    cause = root_cause(error)
    return {
        "class": type(cause).__name__,
        "message": first_line(with_compiler_error(str(cause)))[:300],
        "what": normalised(str(cause)),
        "frame": innermost_frame(cause),
    }
