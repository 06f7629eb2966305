"""The first call of a run that leaves a different state than in eager, and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcdebug.fuzz.python.execution import CHANGE, CallState
from tcdebug.minifier.reuse.differences import differences
from tcdebug.minifier.reuse.reachable import Reachable

UNSUPPORTED = (
    "Unsupported", "UncapturedHigherOrderOpError", "UserError", "RecompileError", "NotExported",
    "GuardOnDataDependentSymNode", "FailOnRecompileLimitHit",
)  # fmt: skip
"""Exceptions that say that torch.compile does not accept a program."""
NOT_YET = (
    "does not yet handle", "not yet supported", "not supported yet", "does not currently support",
    "not currently supported", "an unsupported object of type",
)  # fmt: skip
"""Texts of other exceptions that say so."""
OF_FAKE_TENSORS = "TorchRuntimeError"
"""The exception in place of one that an operator raises, by design of another class."""
PLANNED = ("eager",)
"""Backends that keep eager's strides."""
ROUNDED = 2e-5
"""How far two floats may be apart, in parts of the largest number that the call left behind."""
VIEWS_ONLY = "is a view"
"""What the message of an exception has if autograd forbids a write to a view."""


@dataclass(frozen=True)
class Deviation:
    """The first call that leaves a different state, counted from 0, and the difference."""

    call: int
    what: str
    detail: str
    phase: str
    error: Exception | None = None


def first_deviation(
    eager: Sequence[CallState], compiled: Sequence[CallState], backend: str
) -> Deviation | None:
    """Return the first call whose state differs from eager's; None if all are equal."""
    for place, (right, other) in enumerate(zip(eager, compiled, strict=False)):
        found = _errors_differ(place, right, other)
        if found is not None:
            return found
        if not right.own_error:
            return None  # what torch leaves behind when it raises is not specified
        found = _states_differ(place, right, other, backend)
        if found is not None:
            return found
        again = other.repeats and right.repeats and place > 0
        if again and other.compiles > compiled[place - 1].compiles and other.error is None:
            detail = f"call {place + 1} compiles again, although nothing has changed"
            return Deviation(place, "recompile", detail, "forward")
    return None


def _without_rounding(right: Reachable, other: Reachable) -> Reachable:
    """`other` with the numbers of `right` where rounding alone sets them apart.

    A cancellation leaves the rounding of the numbers before it, so the largest number counts.
    """
    floats = [t for t in right.tensors.values() if t.is_floating_point() and t.numel()]
    largest = max((float(t.nan_to_num(0, 0, 0).abs().max()) for t in floats), default=0.0)
    made = dict(other.tensors)
    for place, value in right.tensors.items():
        now = other.tensors.get(place)
        if now is None or not value.is_floating_point():
            continue
        if (now.shape, now.dtype) == (value.shape, value.dtype) and now.layout is value.layout:
            near = (now - value).abs() <= ROUNDED * largest
            made[place] = torch.where(near, value, now)
    return Reachable(other.nodes, made)


def _errors_differ(place: int, right: CallState, other: CallState) -> Deviation | None:
    error, wanted = other.error, right.error
    if error is None:
        if wanted is None:
            return None
        forbidden = right.phase == CHANGE and VIEWS_ONLY in str(wanted)
        if not right.own_error and not forbidden:
            return None
        detail = f"no exception instead of {type(wanted).__name__}"
        return Deviation(place, "lost exception", detail, right.phase)
    kind = type(error).__name__
    declined = any(owner.__name__ in UNSUPPORTED for owner in type(error).__mro__)
    if declined or any(text in str(error) for text in NOT_YET):
        return Deviation(place, "unsupported", f"{kind}: {error}", other.phase)
    if wanted is None:
        return Deviation(place, "exception", str(error), other.phase, error)
    expected = type(wanted).__name__
    if kind == OF_FAKE_TENSORS or not right.own_error:
        return None
    if expected in [owner.__name__ for owner in type(error).__mro__]:
        return None
    return Deviation(place, f"{kind} instead of {expected}", str(error), other.phase)


def _states_differ(
    place: int, right: CallState, other: CallState, backend: str
) -> Deviation | None:
    value = next(differences(right.state, _without_rounding(right.state, other.state)), None)
    if value is not None:
        part = "result" if value.path.startswith("result") else "side effect"
        what = "gradient" if value.path.endswith(".grad") else part
        # the state is compared after backward, which does not say that backward changed it
        phase = right.phase if what == "gradient" else "forward"
        return Deviation(place, f"wrong {what}", f"{value.path}: {value.detail}", phase)
    if right.warned != other.warned:
        detail = f"{other.warned} instead of {right.warned}"
        return Deviation(place, "wrong warnings", detail, "forward")
    if len(other.alive) > len(right.alive):
        detail = f"{', '.join(other.alive)} live on instead of {', '.join(right.alive) or 'none'}"
        return Deviation(place, "objects alive", detail, "forward")
    if right.modes != other.modes:
        return Deviation(place, "wrong mode", f"{other.modes} instead of {right.modes}", "forward")
    identity = _identity(right, other)
    if identity:
        return Deviation(place, "wrong identity", identity, "forward")
    for node, layout in right.layouts.items():
        actual = other.layouts.get(node)
        if actual is None:
            continue
        if layout.owner != actual.owner:
            detail = f"tensor {node} shares memory with {actual.owner}, not {layout.owner}"
            return Deviation(place, "wrong aliasing", detail, "forward")
        if layout.recorded != actual.recorded:
            detail = f"tensor {node}: grad_fn is {'set' if actual.recorded else 'None'}"
            return Deviation(place, "wrong grad_fn", detail, "forward")
        # eager's transforms return other tensors in inference mode, against the documentation
        documented = actual.inference and right.inferring
        if layout.inference != actual.inference and not documented:
            detail = f"tensor {node}: is_inference is {actual.inference}"
            return Deviation(place, "wrong inference tensor", detail, "forward")
        if backend in PLANNED and layout.strides != actual.strides:
            detail = f"{actual.strides} instead of {layout.strides}"
            return Deviation(place, "wrong strides", detail, "forward")
    return None


def _identity(right: CallState, other: CallState) -> str:
    """Return a path that is the same object as another one in only one of two states."""
    mark = "the same as"
    wanted, now = right.state.paths(), other.state.paths()
    for path in wanted.keys() & now.keys():
        texts = wanted[path], now[path]
        if texts[0] != texts[1] and any(text.startswith(mark) for text in texts):
            return f"{path} is {texts[1]} instead of {texts[0]}"
    return ""
