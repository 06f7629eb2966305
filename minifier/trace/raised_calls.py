"""Compares the exceptions that left a script's compiled functions in two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import recorded
from tcdebug.compiler.events.search_events import CallRaised

WRAPPERS = "torch._dynamo.exc."
"""The beginning of the names of the exceptions in which Dynamo wraps those of a compile."""
LEAST_MESSAGE = 20
"""The length from which a message distinguishes one error from another."""


def wrapped_alike(folder: Path, eager: Sequence[str], compiled: Sequence[str]) -> bool:
    """Return whether the last exceptions of two runs are one error that Dynamo has wrapped.

    The runs are given by what was off. The error must have left the same call in both, and name the
    same line or contain the same message. A statement that raises an exception of its choice may
    choose another one where it is compiled, so the message must be the same then.
    """
    here, there = _last(folder, eager), _last(folder, compiled)
    if here is None or there is None or here["number"] != there["number"]:
        return False
    if not there["error"].startswith(WRAPPERS):
        return False
    message = str(here["message"]).partition("\n")[0]
    if len(message) >= LEAST_MESSAGE and message in there["message"]:
        return True
    return not here["chosen"] and not {*here["places"]}.isdisjoint(there["places"])


def _last(folder: Path, off: Sequence[str]) -> dict[str, Any] | None:
    """Return the exception that left a compiled function last in the last run without something."""
    found = [
        record
        for record in recorded(folder)
        if record["event"] == CallRaised.kind and sorted(record["data"]["off"]) == sorted(off)
    ]
    return max(found, key=lambda record: record["ts"])["data"] if found else None
