"""The oracles: properties that a compiled program must share with eager.

Values and gradients come first, compared by `minifier.compare`. A wrong value is a failure unless
noise explains it (`noise`). Then come strides, shared memory, determinism, no recompile for inputs
that were compiled for, the second call with other sizes, and equal results with units off and on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.runtime.launch import laid_out
from tcdebug.fuzz.autograd_formulas import traced_gradients
from tcdebug.fuzz.noise import Noise, NoiseArguments
from tcdebug.fuzz.verdict import ProgramVerdict, Status, failed
from tcdebug.minifier.cases.exception_identity import root_cause
from tcdebug.minifier.cases.operators.python_text import run_text
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature
from tcdebug.minifier.judging.compare import Difference, difference
from tcdebug.minifier.judging.layout import STRIDES, layout_difference, strides
from tcdebug.minifier.judging.replay import Progress, Results, fresh_capture, run
from tcdebug.minifier.targets import Target
from tcdebug.strategies.devices import CPU
from tcdebug.strategies.program import Program

SLOW_COMPILE = 45.0
"""Time limit for the first call of a program of a few lines, in seconds."""
SLOW_EAGER = 5.0
"""Seconds after which eager is too slow. A compiled program runs several times within its limit."""

EAGER_RUNS = 5
"""How often eager must give the same result if the compiled program differs."""
CALLS_ON_DEVICE = 3
"""Further calls on a GPU: a CUDA graph is recorded in the second call, and then replayed."""

GROUPS = (("forward", "output"), ("forward", "input"), ("backward", "gradient"))
"""What is compared, in this order. A wrong forward makes backward wrong too."""


ROUNDED = ("value", "nan", "inf")
"""Differences that rounding can cause."""


class Discarded(Exception):
    """Rounding alone explains the difference. The message names the place."""


@dataclass(frozen=True)
class JudgedCall:
    """The results of a compiled call, how their layout differs from eager's, and their strides."""

    results: Results
    layout: Difference | None
    strides: list[list[int]]


@dataclass(frozen=True)
class ProgramCall:
    """One call of a program: its module and results in eager, and the inputs."""

    program: Program
    module: torch.nn.Module
    wide: Callable[[], torch.nn.Module]
    arguments: NoiseArguments
    eager: Results

    @classmethod
    def in_eager(cls, program: Program, filename: str, *, second: bool = False) -> ProgramCall:
        """Run a program in eager. Raises what eager raises."""
        names = loaded(program.source(second=second), filename)
        module = names["Graph"]()

        def wide() -> torch.nn.Module:
            made: torch.nn.Module = loaded(program.source(wide=True), filename)["Graph"]()
            return made

        arguments = NoiseArguments.of(names["inputs"]())
        with torch.compiler.set_stance(program.eager_stance):
            return cls(program, module, wide, arguments, run(module, arguments))

    def judged(self, call: JudgedCall) -> Outcome | None:
        """Return the first failure of a compiled call; None if there is none. Raises Discarded."""
        return self.wrong(call.results) or self._layout_differs(call)

    def settled(self) -> bool:
        """Return whether eager gives the same results again: on a CPU the same bits."""
        with torch.compiler.set_stance(self.program.eager_stance):
            again = [run(self.module, self.arguments) for _ in range(EAGER_RUNS)]
        if self.program.device == CPU:
            return all(_not_the_same(self.eager, results) is None for results in again)
        try:
            return all(self.wrong(results) is None for results in again)
        except Discarded:
            return False

    def differs(self, first: Results, again: Results) -> Outcome | None:
        """Return the failure if a later call gives other results than the first. Raises Discarded.

        On a GPU, atomic additions happen in any order, so other bits must only be right.
        """
        found = _not_the_same(first, again)
        if found is None or self.program.device == CPU:
            return found
        wrong = self.wrong(again)
        return wrong and replace(wrong, message=f"{wrong.message}, in a later call")

    def wrong(self, actual: Results) -> Outcome | None:
        """Return the first wrong value of a compiled run. Raises Discarded."""
        noise = Noise(self.program, self.module, self.wide, self.arguments)
        explained = ""
        for phase, what in GROUPS:
            group = f"{what}s"
            pairs = list(zip(getattr(self.eager, group), getattr(actual, group), strict=True))
            for place, (e, c) in enumerate(pairs):
                where = f"{what} {place}"
                if difference(e, c, None, where) is None:
                    continue
                reference = getattr(noise.reference, group)[place] if noise.reference else None
                found = difference(e, c, reference, where)
                if found is None:
                    continue
                rounded = found.what in ROUNDED and not self._exact(what, place)
                if rounded and noise.explains(group, place, e, c):
                    explained = explained or where
                    continue
                if what == "gradient" and self._is_traced(place, c):
                    explained = explained or f"{where}: eager has it too where it is traced"
                    continue
                signature = f"{phase} | wrong {found.what}"
                return Outcome(Kind.WRONG, phase, signature, f"{where}: {found.detail}")
        if explained:
            raise Discarded(explained)
        return None

    def called(self, compiled: Callable[[ProgramCall], Results]) -> JudgedCall:
        """Make a compiled call. The results are copied, as a later call may overwrite them."""
        results = compiled(self)
        found = None
        if _of_equal_kinds(self.eager, results):
            runs = ((self.eager.outputs, self.eager.inputs), (results.outputs, results.inputs))
            found = layout_difference(*runs)
        return JudgedCall(results.copied(), found, [strides(v) for v in results.outputs])

    def _layout_differs(self, call: JudgedCall) -> Outcome | None:
        """Return a difference in strides, or in the memory that outputs and inputs share."""
        found = call.layout
        if found is None:
            return None
        if found.what == STRIDES and self._planned() == call.strides:
            raise Discarded(f"{found.where}: the fake kernels of torch have these strides too")
        detail = f"{found.where}: {found.detail}"
        return Outcome(Kind.WRONG, "forward", f"forward | wrong {found.what}", detail)

    def _planned(self) -> list[list[int]] | None:
        """Return the output strides of the fake kernels, with which every backend plans."""
        try:
            with fresh_capture():
                compiled = torch.compile(self.module, backend=_as_planned)
                return [strides(v) for v in run(compiled, self.arguments).outputs]
        except Exception:  # such as a size that depends on data
            return None

    def _is_traced(self, place: int, actual: Any) -> bool:
        """Return whether eager has it too with the formulas that tracing takes, where its own is
        not finite.
        """
        eager = self.eager.gradients[place]
        if not isinstance(eager, torch.Tensor) or bool(eager.isfinite().all()):
            return False
        with torch.compiler.set_stance(self.program.eager_stance):
            traced = traced_gradients(lambda: run(self.module, self.arguments))
        if not traced or not isinstance(traced[place], torch.Tensor):
            return False
        allowed = torch.where(eager.isfinite(), eager, traced[place])
        return difference(allowed, actual, None, "gradient") is None

    def _exact(self, what: str, place: int) -> bool:
        return what == "output" and self.program.outputs[place] in self.program.exact


def _as_planned(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a backend that is eager, but gives results the strides of the graph's fake tensors."""
    returned = module.graph.output_node().args[0]
    assert isinstance(returned, (tuple, list))
    planned = [node.meta["example_value"] for node in returned if isinstance(node, fx.Node)]

    def call(*values: Any) -> list[Any]:
        return [
            laid_out(result.detach(), result.dtype, fake.shape, fake.stride())
            if isinstance(result, torch.Tensor)
            else result
            for fake, result in zip(planned, module(*values), strict=True)
        ]

    return call


def loaded(text: str, filename: str) -> dict[str, Any]:
    """Return the names that a program's text defines."""
    names: dict[str, Any] = {"torch": torch}
    run_text(text, filename, names)
    return names


def judge(
    program: Program, target: Target, notify: Callable[[str], None], folder: Path
) -> ProgramVerdict:
    """Run a program in eager and compiled in this process, and compare."""
    if program.invalid:
        return ProgramVerdict(Status.INVALID, message=program.invalid)
    filename = str(folder / "program.py")
    start = time.monotonic()
    notify("eager")
    try:
        first = ProgramCall.in_eager(program, filename)
    except Exception as error:
        return ProgramVerdict(Status.INVALID, message=f"{type(error).__name__}: {error}"[:500])
    if program.device != CPU:
        torch.cuda.synchronize()
    if (seconds := time.monotonic() - start) > SLOW_EAGER:
        return ProgramVerdict(Status.DISCARDED, message=f"eager takes {seconds:.0f} s")
    second = _second(program, filename)
    at = Progress(notify)
    at.follow("capture")
    try:
        found = _compiled(first, second, target, at)
    except torch.OutOfMemoryError as problem:  # workers share the memory of a GPU
        return ProgramVerdict(Status.DISCARDED, message=str(problem)[:500])
    except Discarded as where:
        return ProgramVerdict(Status.DISCARDED, message=str(where), second=second is not None)
    except Exception as error:
        cause = root_cause(error)
        message = f"{type(cause).__name__}: {cause}"
        kind = Kind.INVALID if at.phase == "capture" else Kind.EXCEPTION
        return failed(Outcome(kind, at.phase, exception_signature(error, at.phase), message))
    if at.phase == "capture":
        return ProgramVerdict(Status.INVALID, message="Dynamo found nothing to compile in it")
    if found is not None:
        return failed(found)
    seconds = round(time.monotonic() - start, 3)
    return ProgramVerdict(Status.PASSED, second=second is not None, seconds=seconds)


def _second(program: Program, filename: str) -> ProgramCall | None:
    """Return the call with other sizes; None if eager does not accept them.

    Eager is tried on the CPU first: on a GPU, an index out of range ends the process. Large tensors
    are longer than those of the first call, so all indices are in range.
    """
    if not program.dynamic:
        return None
    try:
        if program.device != CPU and not program.large:
            ProgramCall.in_eager(
                msgspec.structs.replace(program, device=CPU), filename, second=True
            )
        return ProgramCall.in_eager(program, filename, second=True)
    except Exception:
        return None


def _compiled(
    first: ProgramCall, second: ProgramCall | None, target: Target, at: Progress
) -> Outcome | None:
    """Return the failure of a program under a target; None if there is none."""
    toggles = Toggles.parse(first.program.off)
    began = time.monotonic()
    further = 1 if first.program.device == CPU else CALLS_ON_DEVICE
    with _in_force(first.program, target, toggles, at) as called:
        actual = first.called(called)
        seconds, compiles = time.monotonic() - began, at.compiles
        again = [called(first).copied() for _ in range(further)]
        if at.compiles > compiles:
            return Outcome(Kind.RECOMPILE, "forward", "forward | recompile", "for the same sizes")
        other = second.called(called) if second is not None else None
        compiles = at.compiles
        for known in (second, first) if second is not None else ():
            called(known)
        if at.compiles > compiles:
            message = "for sizes that both calls had"
            return Outcome(Kind.RECOMPILE, "forward", "forward | recompile", message)
    found = first.judged(actual)
    for results in again:
        found = found or first.differs(actual.results, results)
    if found is not None and not first.settled():
        raise Discarded("eager itself gives different results each time")
    if found is None and second is not None and other is not None:
        found = second.judged(other)
    if found is None and first.program.off:
        found = _differs_with_all_on(replace(first, eager=actual.results), target, at)
    if found is None and seconds > SLOW_COMPILE:
        message = f"{seconds:.0f} s for the first call"
        return Outcome(Kind.SLOW, "compile", "compile | slow", message)
    return found


@contextmanager
def _in_force(
    program: Program, target: Target, toggles: Toggles, at: Progress
) -> Iterator[Callable[[ProgramCall], Results]]:
    """Yield a function that runs calls of a program through a target."""
    module = loaded(program.source(), "program.py")["Graph"]()
    with fresh_capture(), target.compiled(module, toggles, at.follow) as compiled:
        yield lambda call: run(compiled, call.arguments, _backward(at.follow))


def _differs_with_all_on(without: ProgramCall, target: Target, at: Progress) -> Outcome | None:
    """Return the failure with all units on, given that the results with some off are right."""
    with _in_force(without.program, target, Toggles(), at) as called:
        found = without.wrong(called(without))
    if found is None:
        return None
    return replace(found, signature=f"{found.signature} with units on")


def _backward(follow: Callable[[str], None]) -> Callable[[str], None]:
    """Return a notify function for backward: the target announces when the forward run begins."""
    return lambda phase: follow(phase) if phase == "backward" else None


def _not_the_same(one: Results, other: Results) -> Outcome | None:
    """Return the difference if two calls with equal inputs do not give equal bits."""
    for phase, what in GROUPS:
        pairs = zip(getattr(one, f"{what}s"), getattr(other, f"{what}s"), strict=True)
        for place, (a, b) in enumerate(pairs):
            if isinstance(a, torch.Tensor) and not _same_bits(a, b):
                where = f"{what} {place} of two calls with the same inputs"
                return Outcome(Kind.WRONG, phase, f"{phase} | not the same twice", where)
    return None


def _of_equal_kinds(one: Results, other: Results) -> bool:
    """Return whether the values of two runs have the same types and shapes."""

    def kinds(results: Results) -> list[object]:
        values = (*results.outputs, None, *results.inputs)
        return [(type(v), getattr(v, "shape", ())) for v in values]

    return kinds(one) == kinds(other)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())
