"""The oracle `validation`: eager raises an exception for inputs that compiled code accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.exception_identity import normalised, root_cause
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.replay import Notify, Progress, fresh_capture, run
from tcdebug.minifier.targets import Target

ACCEPTED = "accepted"
"""The second part of the signature of such a failure."""


def judge_validation(
    case: Case, target: Target, toggles: Toggles, notify: Notify, filename: str
) -> Outcome:
    """Run a case that eager may reject through a target under toggles.

    It is wrong if eager raises in forward and the compiled graph returns. The signature names the
    exception, so that a smaller case must be rejected for the same reason. An exception of another
    class in the compiled graph is another failure.
    """
    notify("eager")
    refused = _raised(load(case, filename), case)
    if refused is None:
        return Outcome(Kind.OK)
    at = Progress(notify)
    at.follow("capture")
    module = load(case, filename)
    with fresh_capture():
        try:
            with target.compiled(module, toggles, at.follow) as compiled:
                raised = _raised(compiled, case)
        except Exception as error:
            raised = error
    if at.phase == "capture":
        return Outcome(Kind.INVALID, at.phase, message="Dynamo did not capture it again")
    cause = root_cause(refused)
    name, what = type(cause).__name__, str(cause)
    if raised is not None:
        other = root_cause(raised)
        if type(other) is type(cause):
            return Outcome(Kind.OK)
        message = f"{type(other).__name__}: {other}"
        return Outcome(Kind.EXCEPTION, at.phase, exception_signature(raised, at.phase), message)
    signature = f"forward | {ACCEPTED} | {name} | {normalised(what)}"
    message = f"eager raises {name}: {what.strip()}"
    return Outcome(Kind.WRONG, "forward", signature, f"{message}; compiled code accepts the inputs")


def _raised(call: Callable[..., Any], case: Case) -> Exception | None:
    """Return what forward raises; None if it returns, whatever backward does."""
    phases: list[str] = []
    try:
        run(call, case, phases.append, mark=True)
    except Exception as error:
        return None if "backward" in phases else error
    return None
