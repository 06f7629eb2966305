"""Identifies an exception, as `cases/outcome.py` does."""

from __future__ import annotations

import re
import traceback
from typing import Any

PLAIN = (
    (r"^Triton Error \[CUDA\]: ", "CUDA error: "),
    (r"^CUDA driver error: ", "CUDA error: "),
    (r"^CUDA out of memory\..*", "CUDA out of memory"),
    (r"^CUDA error: out of memory.*", "CUDA out of memory"),
    (r"^(CUDA error: CU[A-Z]+_STATUS_[A-Z_]+).*", r"\1"),
    (r"(/[\w.+-]+)+/?", "<path>"),
    (r"'[^']*'|\"[^\"]*\"|\u2018[^\u2019]*\u2019", "<name>"),
    (r"\b([A-Za-z_]+?)_\d+\b", r"\1"),
    (r"0x[0-9a-fA-F]+|\b\d+(\.\d+)?(e[+-]?\d+)?\b", "#"),
)
"""What differs between runs in a message, and what replaces it."""
GENERATED = r"^[0-9a-z]{40,}\.py$"
"""Files that a compiler names after a hash of their contents."""


def exception_result(error: BaseException) -> dict[str, Any]:
    """Return the class of an exception's cause, its message without numbers, and its frame."""
    while cause := getattr(error, "inner_exception", None) or error.__cause__:
        error = cause
    message = what = (str(error).strip().splitlines() or [""])[0]
    for pattern, other in PLAIN:
        what = re.sub(pattern, other, what)
    frame = ""
    if trace := traceback.extract_tb(error.__traceback__):
        *_, folder, name = ("", *trace[-1].filename.split("/"))
        file = "<generated>" if re.search(GENERATED, name) else f"{folder}/{name}".lstrip("/")
        frame = f"{file}:{trace[-1].name}"
    return {
        "class": type(error).__name__,
        "message": message[:300],
        "what": what[:160],
        "frame": frame,
    }
