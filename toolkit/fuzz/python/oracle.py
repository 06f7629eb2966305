"""The verdict on a Python program: compiled, each call must leave the same state as in eager.

A state is everything that the call could write: its result, the variables of the module and all
that they refer to, gradients, exceptions, shared memory and the modes of torch. A graph that is
reused is stale if a fresh capture is right at the call that fails. An equal call compiles nothing.

An exported program leaves the state of the program alone, so only its result is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch

from tcdebug.fuzz.python.compiling import Compilation
from tcdebug.fuzz.python.execution import (
    CHANGE,
    BrokenProgram,
    CallState,
    Execution,
)
from tcdebug.fuzz.verdict import ProgramVerdict, Status, failed
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature, root_cause
from tcdebug.minifier.judging.untimed_guards import untimed_guards
from tcdebug.minifier.reuse.differences import differences
from tcdebug.minifier.reuse.reachable import Reachable
from tcdebug.strategies.python.python_program import CallStep, PythonProgram
from tcdebug.strategies.python.ways import WAYS

UNSUPPORTED = (
    "Unsupported", "UncapturedHigherOrderOpError", "UserError", "RecompileError", "NotExported",
    "GuardOnDataDependentSymNode", "FailOnRecompileLimitHit",
)  # fmt: skip
"""Exceptions that say that torch.compile does not accept a program."""
OF_FAKE_TENSORS = "TorchRuntimeError"
"""The exception in place of one that an operator raises, by design of another class."""
PLANNED = ("eager",)
"""Backends that keep eager's strides."""
CACHING = ("inductor",)
"""Backends that have caches, which a second run reads."""
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


def judge_python(
    program: PythonProgram, name: str, notify: Callable[[str], None], folder: Path
) -> ProgramVerdict:
    """Run a program in eager and compiled in this process, and compare each call.

    `name` is a backend that torch.compile knows. Files are written to `folder`.
    """
    start = time.monotonic()
    program = _comparable(program)
    compilation = Compilation(
        program, folder / "program.py", torch._dynamo.lookup_backend(name), notify
    )
    notify("eager")
    with untimed_guards():
        try:
            verdict = PythonJudging(compilation, name).verdict()
        except BrokenProgram as problem:
            return ProgramVerdict(Status.INVALID, message=str(problem)[:500])
    seconds = round(time.monotonic() - start, 3)
    return msgspec.structs.replace(verdict, second=len(program.steps) > 1, seconds=seconds)


def _comparable(program: PythonProgram) -> PythonProgram:
    """The calls of a program that its way can make: an exported one is called once."""
    if not WAYS[program.way].exports:
        return program
    first = msgspec.structs.replace(program.steps[0], backward=False, between=())
    return msgspec.structs.replace(program, steps=(first,))


@dataclass(frozen=True)
class PythonJudging:
    """Runs one program in eager and compiled. `name` is that of the backend."""

    compilation: Compilation
    name: str

    def verdict(self) -> ProgramVerdict:
        """The verdict. Raises BrokenProgram."""
        eager = self.compilation.eager()
        if problem := self._unfit(eager):
            return ProgramVerdict(Status.DISCARDED, message=problem)
        found = self._deviation(eager)
        if found is None:
            return ProgramVerdict(Status.PASSED)
        if found.what == "unsupported":
            return ProgramVerdict(Status.DISCARDED, message=found.detail[:500])
        if first_deviation(eager, self.compilation.eager(), self.name) is not None:
            return ProgramVerdict(Status.DISCARDED, message="eager itself gives different results")
        return failed(self._outcome(found, eager))

    def _unfit(self, eager: Sequence[CallState]) -> str:
        """Why the way does not fit the program; empty if it does.

        A wrapper must not change what eager does. What is exported must change nothing.
        """
        way = self.compilation.way
        if way.wrapper:
            plain = self.compilation.eager(plain=True)
            if first_deviation(plain, eager, self.name) is not None:
                return f"{self.compilation.program.way} changes what eager does"
        if way.exports:
            program = self.compilation.program
            twice = msgspec.structs.replace(program, steps=(*program.steps, CallStep()))
            states = Execution(twice, self.compilation.path, lambda f: f).states()
            if len(states) < 2 or next(differences(*(s.state for s in states)), None) is not None:
                return "a call changes more than its result"
            if _has_parameters(states[0]):
                return "the program has parameters, which an exported program keeps as constants"
        return ""

    def _deviation(self, eager: Sequence[CallState]) -> Deviation | None:
        """The first deviation of a compiled run, or of a second one with warm caches."""
        found = first_deviation(eager, self.compilation.compiled(), self._planned)
        if found is None and self.name in CACHING:
            found = first_deviation(eager, self.compilation.compiled(), self._planned)
            if found is not None:
                return replace(found, what=f"second run: {found.what}")
        return found

    @property
    def _planned(self) -> str:
        """The backend that plans strides; none for an exported program."""
        return "" if self.compilation.way.exports else self.name

    def _outcome(self, found: Deviation, eager: Sequence[CallState]) -> Outcome:
        """The deviation as a failure, and whether a fresh capture does not have it."""
        if found.error is not None:
            cause = root_cause(found.error)
            signature = exception_signature(found.error, found.phase)
            message = f"call {found.call + 1}: {type(cause).__name__}: {cause}"
            return Outcome(Kind.EXCEPTION, found.phase, signature, message)
        if found.what.startswith("recompile"):
            return Outcome(Kind.RECOMPILE, "forward", f"forward | {found.what}", found.detail)
        what = found.what
        if found.call > 0:
            fresh = first_deviation(eager, self.compilation.compiled(fresh=True), self._planned)
            if fresh is None or fresh.call > found.call:
                what = f"stale graph: {what}"
        message = f"call {found.call + 1}: {found.detail}"
        return Outcome(Kind.WRONG, found.phase, f"{found.phase} | {what}", message)


def first_deviation(
    eager: Sequence[CallState], compiled: Sequence[CallState], backend: str
) -> Deviation | None:
    """The first call whose state differs from eager's; None if all are equal."""
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


def _has_parameters(state: CallState) -> bool:
    """Whether a leaf other than the arguments requires a gradient."""
    nodes = state.state.nodes
    arguments = {place for name, place in nodes[0].children if name in ("x", "y")}
    return any(
        "requires_grad" in str(nodes[place].value) and not layout.recorded
        for place, layout in state.layouts.items()
        if place not in arguments
    )


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
    if any(owner.__name__ in UNSUPPORTED for owner in type(error).__mro__):
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
        return Deviation(place, f"wrong {what}", f"{value.path}: {value.detail}", right.phase)
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
        if layout.inference != actual.inference:
            detail = f"tensor {node}: is_inference is {actual.inference}"
            return Deviation(place, "wrong inference tensor", detail, "forward")
        if backend in PLANNED and layout.strides != actual.strides:
            detail = f"{actual.strides} instead of {layout.strides}"
            return Deviation(place, "wrong strides", detail, "forward")
    return None


def _identity(right: CallState, other: CallState) -> str:
    """A path that is the same object as another one in only one of two states."""
    mark = "the same as"
    wanted, now = right.state.paths(), other.state.paths()
    for path in wanted.keys() & now.keys():
        texts = wanted[path], now[path]
        if texts[0] != texts[1] and any(text.startswith(mark) for text in texts):
            return f"{path} is {texts[1]} instead of {texts[0]}"
    return ""
