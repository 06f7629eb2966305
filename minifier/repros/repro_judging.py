"""What a repro script tells its judge about the failure."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import LONGER_THAN, SLOWER_THAN
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.outcome import (
    WRONG_ADDRESS,
    Kind,
    Outcome,
    RaisedAt,
    is_device_error,
)
from tcdebug.minifier.judging.layout import ALIASING, STRIDES
from tcdebug.minifier.judging.marked_inputs import marks
from tcdebug.minifier.repros.verify import COLD_SECONDS, SECONDS
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.backends import EMBEDDED

COLD = 3.0
"""A repro script may take this many times as long as a warm candidate."""
PACKAGING_SECONDS = 2 * COLD_SECONDS
"""The same where AOTInductor compiles a library besides the kernels."""


@dataclass(frozen=True)
class SpeedLimits:
    """The limits beyond which a repro is slow."""

    slower_than: float = SLOWER_THAN
    """The limit as a multiple of the time of eager."""
    longer_than: float = LONGER_THAN
    """The limit on compile time, in CPU-seconds."""


def seconds_of_graph(failure: Outcome, target: Target, candidate: float) -> float:
    """Return the seconds after which a repro reports a hang, which takes a candidate this long.

    A fresh process is slower than a warm one.
    """
    if failure.kind is not Kind.HANG:
        return SECONDS
    cold = PACKAGING_SECONDS if target.name == AOTINDUCTOR_BACKEND else COLD_SECONDS
    if failure.endless:
        return cold
    least = 0.0 if target.call()["backend"] == EMBEDDED else cold
    return min(SECONDS, max(least, COLD * candidate))


def judging_arguments(case: Case, outcome: Outcome, limits: SpeedLimits) -> dict[str, str]:
    """Return the arguments of the judge for checks that only some failures need, as Python."""
    dynamic, fixed = marks(case.inputs)
    found = {name: repr(of) for name, of in (("dynamic", dynamic), ("fixed", fixed)) if of}
    if outcome.compiles_slowly:
        found["longer_than"] = repr(limits.longer_than)
    elif outcome.kind in (Kind.SLOW, Kind.RECOMPILE):
        found["speed"] = f"Speed({limits.slower_than}, {dynamic})"
    if outcome.signature.endswith((f"wrong {STRIDES}", f"wrong {ALIASING}")):
        found["layout"] = "layout"
    if outcome.endless:
        found["watch"] = "watch"
    return found


def expected_exception(outcome: Outcome) -> dict[str, str | list[str]]:
    """Return what identifies an exception in a repro: class, message, and frame in the compiler.

    A CUDA device error is identified by its message alone.
    """
    raised = RaisedAt.of(outcome)
    if raised.what in WRONG_ADDRESS:
        return {"what": [*WRONG_ADDRESS]}
    if is_device_error(raised.what):
        return {"what": raised.what}
    found: dict[str, str | list[str]] = {"class": raised.class_name, "what": raised.what}
    return found | ({"frame": raised.frame} if _is_in_compiler(raised.frame) else {})


def _is_in_compiler(frame: str) -> bool:
    """Return whether a frame is in a file of torch or tcdebug. Other frames differ in a repro.

    A file without a folder is a script that was started by its bare name.
    """
    file = frame.partition(":")[0]
    roots = ("torch.", "tcdebug.")
    loaded = [m for name, m in sys.modules.items() if name.startswith(roots)]
    files = (getattr(module, "__file__", None) or "" for module in loaded)
    return "/" in file and any(name.endswith(f"/{file}") for name in files)
