"""Runs a case eagerly and compiled in this process, and reports how the compiled run ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import restored
from tcdebug.minifier.cases.case import (
    Case,
    CaseInput,
    clone_values,
    flatten,
    needs_own_dtypes,
)
from tcdebug.minifier.cases.exception_identity import root_cause, with_compiler_error
from tcdebug.minifier.cases.lineage import Change, leaves
from tcdebug.minifier.cases.operators.data import gradients, storages
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.cases.subclasses.parts import cotangents, finished
from tcdebug.minifier.judging.compare import Difference, Referee, first_difference, same_bits
from tcdebug.minifier.judging.endings import ENDLESS
from tcdebug.minifier.judging.further_calls import NumberedCall, calls_of, can_be_repeated
from tcdebug.minifier.judging.kernels import EndlessKernels, finish_kernels
from tcdebug.minifier.judging.layout import layout_difference
from tcdebug.minifier.judging.marked_inputs import mark_inputs, marks
from tcdebug.minifier.judging.named_call import named_call
from tcdebug.minifier.judging.own_draws import SEEDS, difference_of_draws
from tcdebug.minifier.judging.reference.draws import drawn_since, with_equal_draws
from tcdebug.minifier.judging.reference.other_roundings import furthest_of_roundings
from tcdebug.minifier.judging.reference.widened_dtypes import in_float64, weights_in_float64
from tcdebug.minifier.judging.timing.untimed_guards import untimed_guards
from tcdebug.minifier.judging.unwritten import (
    Memory,
    filling_before_backward,
    memory_for_calls,
    overlook,
    undefined,
)
from tcdebug.minifier.processes.job import NOT_CAPTURED
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.drawing import calls_drawing

SEED = SEEDS[0]
PARTS = (("forward", "output"), ("forward", "input"), ("backward", "gradient"))
"""The parts of results in the order in which they are compared, each with its phase."""
REFERENCED = (Referee.DEFAULT, Referee.LAYOUT)
"""Referees that check what they call wrong against a float64 run."""
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Results:
    """The results of one run: outputs, gradients of the inputs, and the inputs afterwards."""

    outputs: list[Any]
    gradients: list[Any]
    inputs: list[Any]

    def part(self, what: str) -> list[Any]:
        """Return the values of a part, by its name in PARTS."""
        return list(getattr(self, f"{what}s"))

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors among them."""
        values = (*self.outputs, *self.gradients, *self.inputs)
        return [value for value in values if isinstance(value, torch.Tensor)]

    def copied(self) -> Results:
        """Return copies with the same strides."""

        def copies(values: Sequence[Any]) -> list[Any]:
            return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]

        with torch.no_grad():
            return Results(copies(self.outputs), copies(self.gradients), copies(self.inputs))


Ignore = Callable[[Results], None]


class GraphInputs(Protocol):
    """The inputs of a graph: a case, or other inputs."""

    @property
    def inputs(self) -> tuple[CaseInput, ...]: ...

    def values(self) -> list[Any]: ...


def run(
    call: Callable[..., Any],
    case: GraphInputs,
    notify: Notify = lambda phase: None,
    *,
    dtype: torch.dtype | None = None,
    mark: bool = False,
    seed: int = SEED,
) -> Results:
    """Call a graph on fresh copies of its inputs, and run backward if gradients are required.

    `seed` is that of torch's generators; the cotangents have their own. With `dtype`, floats are
    converted to it first. `mark` marks dynamic dimensions and fixed addresses for Dynamo.
    """
    values = clone_values(case.values(), _converting(dtype) if dtype else None)
    if mark:
        mark_inputs(values, *marks(case.inputs))
    wanted = leaves(values)
    before = storages(wanted)
    torch.manual_seed(seed)
    notify("forward")
    with restored():
        outputs = flatten(call(*values))
    finish_kernels()
    found: list[Any] = []
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if wanted and roots and torch.is_grad_enabled():
        notify("backward")
        found = gradients(roots, wanted, cotangents(roots), before)
        finish_kernels()
    return Results([_detached(o) for o in outputs], found, [_detached(v) for v in values])


def _detached(value: Any) -> Any:
    return finished(value.detach()) if isinstance(value, torch.Tensor) else value


def _converting(dtype: torch.dtype) -> Change:
    """Return a conversion of floats to this dtype."""
    return lambda memory: memory.to(
        dtype if memory.is_floating_point() else memory.dtype, copy=True
    )


class Extra(Protocol):
    """A judgement of a program that ran correctly, made while it is still compiled."""

    def __call__(
        self,
        case: Case,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        compiles: Callable[[], int],
    ) -> Outcome: ...


@dataclass
class Progress:
    """The current phase of a run, and how often a graph has been compiled."""

    notify: Notify
    phase: str = ""
    compiles: int = 0

    def follow(self, phase: str) -> None:
        """Enter the next phase."""
        self.phase = phase
        self.compiles += phase == "compile"
        self.notify(phase)


def judge(
    case: Case,
    target: Target,
    toggles: Toggles,
    notify: Notify,
    filename: str,
    referee: Referee | None = Referee.DEFAULT,
    extra: Extra | None = None,
) -> Outcome:
    """Run a case eagerly and through a target under toggles, and compare the results.

    Without a referee nothing is compared, and `extra` decides.
    """
    notify("eager")
    module = load(case, filename)
    try:
        began = time.monotonic()
        eager = run(module, case)
        eager_seconds = time.monotonic() - began
        drew = drawn_since(SEED) or calls_drawing(case.module)
        memory, ignore = _memory(case, filename, eager, referee)
    except Exception as error:
        return Outcome(Kind.INVALID, "eager", message=f"{type(error).__name__}: {error}")
    at = Progress(notify)
    at.follow("capture")
    follow = filling_before_backward(memory, _after_compile(at.follow))
    module_again = load(case, filename)
    found = Outcome(Kind.OK)
    try:
        with fresh_capture(), target.compiled(module_again, toggles, at.follow) as compiled:

            def call(seed: int = SEED) -> Results:
                with EndlessKernels(partial(os._exit, ENDLESS), eager_seconds), memory():
                    return run(compiled, case, follow, mark=True, seed=seed)

            own_draws = drew and not target.draws_as_eager
            if own_draws and referee is not None and can_be_repeated(case):
                calls = [NumberedCall(k, call(seed)) for k, seed in enumerate(SEEDS, 1)]
            # copies of results do not share memory as the results do
            elif referee not in (None, Referee.LAYOUT) and can_be_repeated(case):
                calls = calls_of(call, Results.copied, Results.tensors)
            else:
                calls = [NumberedCall(1, call())]
            if extra is not None and at.compiles:
                found = extra(case, module, compiled, lambda: at.compiles)
    except Exception as error:
        cause = root_cause(error)
        message = f"{type(cause).__name__}: {with_compiler_error(str(cause))}"
        if at.phase == "capture":
            return Outcome(Kind.INVALID, at.phase, message=f"{NOT_CAPTURED}: {message}")
        signature, named = exception_signature(error, at.phase), named_call(error, case.calls)
        return Outcome(Kind.EXCEPTION, at.phase, signature, message, drew=drew, named=named)
    if at.phase == "capture":
        return Outcome(Kind.INVALID, at.phase, message="Dynamo found nothing to compile in it")
    if referee is not None and own_draws:
        runs = [eager, *(run(module, case, seed=seed) for seed in SEEDS[1 : len(calls)])]
        found = compare_draws(runs, [c.results for c in calls], referee)
    elif referee is not None:
        found = _compare_all(case, module, eager, calls, referee, ignore)
    return replace(found, drew=drew)


def _memory(
    case: Case, filename: str, eager: Results, referee: Referee | None
) -> tuple[Memory, Ignore]:
    """Return what surrounds a compiled call, and what hides results that nothing has written.

    See `unwritten.memory_for_calls` and `unwritten.overlook`.
    """
    elements: dict[str, list[torch.Tensor | None]] = {}

    def again() -> Results:
        return run(load(case, filename), case)

    def same(results: Results) -> bool:
        return _wrong(eager, results, None, Referee.EAGER) is None

    def record(*others: Results) -> None:
        for _, what in PARTS:
            elements[what] = undefined(eager.part(what), *(other.part(what) for other in others))

    def ignore(results: Results) -> None:
        for what, where in elements.items():
            overlook(where, results.part(what))

    memory = memory_for_calls(again, same, record) if referee else contextlib.nullcontext
    ignore(eager)
    return memory, ignore


def _compare_all(
    case: Case,
    module: torch.nn.Module,
    eager: Results,
    calls: Sequence[NumberedCall[Results]],
    referee: Referee,
    ignore: Ignore,
) -> Outcome:
    """Compare the results of several calls with eager's. The first that differ decide."""
    for call in calls:
        found = compare(case, module, eager, call.results, referee, ignore)
        if found.failed or found.kind is Kind.INVALID:
            later = f", in call {call.number}" if call.number > 1 else ""
            return replace(found, message=f"{found.message}{later}", call=call.number)
    return found


def _after_compile(follow: Notify) -> Notify:
    """Drop the announcement of forward: the target makes it after the compile."""
    return lambda phase: follow(phase) if phase == "backward" else None


@contextlib.contextmanager
def fresh_capture() -> Iterator[None]:
    """Reset Dynamo's state from earlier compiles, and let it raise errors in this block."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=False), untimed_guards():
        yield


def compare(
    case: Case,
    module: torch.nn.Module,
    eager: Results,
    actual: Results,
    referee: Referee = Referee.DEFAULT,
    ignore: Ignore = lambda results: None,
) -> Outcome:
    """Compare two runs, forward first. `ignore` hides what counts in eager's run only."""

    def again() -> Results:
        ignore(results := run(module, case))
        return results

    ignore(actual)
    found = _wrong(eager, actual, None, referee) if referee is not Referee.FP64 else None
    if referee is Referee.FP64 or (found is not None and referee in REFERENCED):
        reference = _reference(case, module)
        if reference is not None:
            ignore(reference)
            found = _wrong(eager, actual, reference, referee)
            if found is not None:
                other = _rerounded(again, eager, reference, actual)
                found = _wrong(eager, actual, reference, referee, other)
        elif referee is Referee.FP64:
            return Outcome(Kind.INVALID, "eager", message="there is no float64 run to compare with")
    if found is None and referee is Referee.LAYOUT:
        found = _laid_out_wrong(eager, actual)
    if found is None:
        return Outcome(Kind.OK, rounded=not same_bits(eager.tensors(), actual.tensors()))
    return _wrong_outcome(*found)


def compare_draws(
    eager: Sequence[Results], actual: Sequence[Results], referee: Referee = Referee.DEFAULT
) -> Outcome:
    """Compare runs whose random numbers differ; see `own_draws`."""
    for phase, what in PARTS:
        ours, theirs = ([getattr(r, f"{what}s") for r in runs] for runs in (eager, actual))
        if (found := difference_of_draws(ours, theirs, what)) is not None:
            return _wrong_outcome(phase, found)
    if referee is Referee.LAYOUT and (laid_out := _laid_out_wrong(eager[0], actual[0])):
        return _wrong_outcome(*laid_out)
    return Outcome(Kind.OK)


def _wrong_outcome(phase: str, difference: Difference) -> Outcome:
    signature = f"{phase} | wrong {difference.what}"
    message = f"{difference.where}: {difference.detail}"
    what, _, place = difference.where.partition(" ")
    position = place.partition(".")[0]  # the name of a part follows
    output = int(position) if what == "output" and position.isdigit() else None
    return Outcome(Kind.WRONG, phase, signature, message, times=difference.times, output=output)


def _laid_out_wrong(eager: Results, actual: Results) -> tuple[str, Difference] | None:
    found = layout_difference((eager.outputs, eager.inputs), (actual.outputs, actual.inputs))
    return None if found is None else ("forward", found)


def _wrong(
    eager: Results,
    actual: Results,
    reference: Results | None,
    referee: Referee,
    other: Results | None = None,
) -> tuple[str, Difference] | None:
    for phase, what in PARTS:
        right, exact = eager.part(what), reference.part(what) if reference else None
        if exact is not None and len(exact) != len(right):
            exact = None
        others = other.part(what) if other else None
        found = first_difference(right, actual.part(what), exact, what, referee, others)
        if found is not None:
            return phase, found
    return None


def _rerounded(
    again: Callable[[], Results], eager: Results, exact: Results, actual: Results
) -> Results:
    """Return the results of eager, with those of few values rounded in another way."""

    def furthest(what: str) -> list[Any]:
        known = (eager.part(what), exact.part(what), actual.part(what))
        return furthest_of_roundings(*known, lambda: again().part(what))

    return Results(furthest("output"), furthest("gradient"), eager.inputs)


def _reference(case: Case, module: torch.nn.Module) -> Results | None:
    """Run in float64 with eager's random numbers. None if the graph needs its own dtypes."""
    if needs_own_dtypes(module):
        return None

    def widened(graph: Callable[..., Any]) -> Results:
        with weights_in_float64(module):
            return run(graph, case, dtype=torch.float64)

    def reference(graph: Callable[..., Any]) -> Results:
        return with_equal_draws(lambda: run(module, case), lambda: widened(graph), seed=SEED)

    try:
        return in_float64(module, reference)
    except Exception:
        return None
