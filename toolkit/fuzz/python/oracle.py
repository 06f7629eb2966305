"""The verdict on a Python program: compiled, each call must leave the same state as in eager.

A state is everything that the call could write: its result, the variables of the module and all
that they refer to, gradients, exceptions, shared memory and the modes of torch. A graph that is
reused is stale if a fresh capture is right at the call that fails. An equal call compiles nothing.

An exported program leaves the state of the program alone, so only its result is compared.

A program may also run in three processes that share the folder of all caches: first with other
numbers, then itself, with entries that are not its own, then once more, with entries that are.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch

from tcdebug.fuzz.python.canary import still_compiles
from tcdebug.fuzz.python.compiling import Compilation
from tcdebug.fuzz.python.deviation import PLANNED, Deviation, first_deviation
from tcdebug.fuzz.python.execution import BrokenProgram, CallState, Execution, torch_modes
from tcdebug.fuzz.python.fresh_process import ProcessAnswer, bits_of, in_fresh_process, neighbour
from tcdebug.fuzz.verdict import ProgramVerdict, Status, failed
from tcdebug.minifier.cases.exception_identity import root_cause
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature
from tcdebug.minifier.judging.timing.untimed_guards import untimed_guards
from tcdebug.minifier.reuse.differences import differences
from tcdebug.minifier.reuse.freed_graphs import FREED, watching_backward
from tcdebug.strategies.python.python_program import CallStep, PythonProgram
from tcdebug.strategies.python.ways import GRAPH_BREAKS, WAYS

CACHING = ("inductor",)
"""Backends that have caches, which a second run reads."""
OF_OBJECTS = ("wrong identity", "wrong aliasing", "wrong inference tensor")
"""Deviations that do not count for a package, which returns values rather than objects."""
LOST_HISTORY = re.compile(r"(?:^|: )(Tensor .+) instead of \1, requires_grad$")
"""The detail of a deviation if a tensor requires a gradient in eager alone."""
CREATES_GRAPH = "create_graph=True"
ASKS = "is_exporting()"
"""What is true only in an exported program."""
UNCONNECTED = ("appears to not have been used in the graph", "does not have a grad_fn")
"""What autograd says of a gradient without a history; the second, before torch 2.13."""

MODIFIED = "needed for gradient computation has been modified by an inplace operation"
"""The message of autograd if a program has written to a tensor that backward needs."""


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
        compiles = _seen_to_compile(compilation, verdict) or still_compiles()
    seconds = round(time.monotonic() - start, 3)
    return msgspec.structs.replace(
        verdict, second=len(program.steps) > 1, seconds=seconds, compiles=compiles
    )


def _seen_to_compile(compilation: Compilation, verdict: ProgramVerdict) -> bool:
    """Return whether the last run of a program compiled a graph, if the program passed.

    Other verdicts hide nothing.
    """
    if verdict.status is not Status.PASSED:
        return True
    return bool(compilation.runs) and compilation.runs[-1].compiles > 0


def _comparable(program: PythonProgram) -> PythonProgram:
    """Return the calls of a program that its way can make: an exported one is called once."""
    way = WAYS[program.way]
    if not way.exports:
        return program
    first = msgspec.structs.replace(program.steps[0], backward=False, between=())
    if way.inference:
        first = msgspec.structs.replace(first, mode="torch.no_grad()")
    return msgspec.structs.replace(program, steps=(first,))


@dataclass(frozen=True)
class PythonJudging:
    """Runs one program in eager and compiled. `name` is that of the backend."""

    compilation: Compilation
    name: str

    def verdict(self) -> ProgramVerdict:
        """Return the verdict. Raises BrokenProgram."""
        eager = self.compilation.eager()
        if problem := self._unfit(eager):
            return ProgramVerdict(Status.DISCARDED, message=problem)
        if self.compilation.way.processes:
            return self._in_processes(eager)
        return self._judged(eager, self._deviation(eager))

    def _judged(self, eager: Sequence[CallState], found: Deviation | None) -> ProgramVerdict:
        """Return the verdict on a deviation."""
        if found is None:
            return ProgramVerdict(Status.PASSED)
        if found.error is not None and self._differentiated_twice(found.error):
            return ProgramVerdict(Status.DISCARDED, message=f"no double backward: {found.detail}")
        if found.error is not None and self._differentiates_freed(found.error):
            return ProgramVerdict(Status.DISCARDED, message="the program differentiates twice")
        if found.error is not None and self._has_no_backward(found.error):
            return ProgramVerdict(Status.DISCARDED, message=f"no backward: {found.detail}"[:500])
        if found.what == "unsupported":
            return ProgramVerdict(Status.DISCARDED, message=found.detail[:500])
        if first_deviation(eager, self.compilation.eager(), self.name) is not None:
            return ProgramVerdict(Status.DISCARDED, message="eager itself gives different results")
        return failed(self._outcome(found, eager))

    def _differentiated_twice(self, error: Exception) -> bool:
        """Return whether an exception says that a compiled graph has no double backward.

        The message names that only if the graph has elements to differentiate.
        """
        asked = CREATES_GRAPH in self.compilation.program.source()
        return asked and any(said in str(error) for said in UNCONNECTED)

    def _differentiates_freed(self, error: Exception) -> bool:
        """Return whether an exception says that the program differentiates a graph that is freed.

        Eager accepts that only if the nodes of the graph have saved nothing.
        """
        if FREED not in str(root_cause(error)):
            return False
        with watching_backward() as freed:
            self.compilation.eager()
        return freed.again

    def _has_no_backward(self, error: Exception) -> bool:
        """Return whether an exception says that the program writes to what backward needs.

        AOTAutograd traces backward together with forward, so it raises although the program does
        not differentiate. Eager raises if it does.
        """
        if MODIFIED not in str(root_cause(error)):
            return False
        program = self.compilation.program
        steps = tuple(msgspec.structs.replace(step, backward=True) for step in program.steps)
        differentiated = msgspec.structs.replace(program, steps=steps)
        states = replace(self.compilation, program=differentiated).eager()
        return any(MODIFIED in str(state.error) for state in states)

    def _unfit(self, eager: Sequence[CallState]) -> str:
        """Return why the way does not fit the program; empty if it does.

        A wrapper must not change what eager does. What is exported must change nothing.
        """
        way = self.compilation.way
        if way.wrapper:
            plain = self.compilation.eager(plain=True)
            if first_deviation(plain, eager, "" if way.relation else self.name) is not None:
                return f"{self.compilation.program.way} changes what eager does"
        if way.exports:
            program = self.compilation.program
            if ASKS in program.source():
                return "the program asks whether it is exported"
            twice = msgspec.structs.replace(program, steps=(*program.steps, CallStep()))
            states = Execution(twice, self.compilation.path, lambda f: f).states()
            if len(states) < 2 or next(differences(*(s.state for s in states)), None) is not None:
                return "a call changes more than its result"
            if states[0].modes != torch_modes():
                return "a call changes a mode of torch"
            if _has_parameters(states[0]):
                return "the program has parameters, which an exported program keeps as constants"
            if way.inference and any(_requires_gradient(s) for s in eager):
                return "a result requires a gradient"
        return ""

    def _deviation(self, eager: Sequence[CallState]) -> Deviation | None:
        """Return the first deviation of a compiled run, or of a second one with warm caches."""
        states = self.compilation.compiled()
        found = first_deviation(eager, states, self._planned)
        if found is not None and self._tolerated(found):
            return None
        if found is None and self._exact:
            return self._other_bits(eager, states)
        if found is None and self.name in CACHING and not self.compilation.way.exports:
            found = first_deviation(eager, self.compilation.compiled(), self._planned)
            if found is not None:
                return replace(found, what=f"second run: {found.what}")
        return found

    def _tolerated(self, found: Deviation) -> bool:
        """Return whether a program compiled in this way may differ from eager like that.

        In a functional program, a write to a whole tensor is another tensor, without a gradient.
        """
        way = self.compilation.way
        if way.inference and found.what in OF_OBJECTS:
            return True
        return way.functional and LOST_HISTORY.search(found.detail) is not None

    @property
    def _exact(self) -> bool:
        """Whether the program and a related one must give the same bits, if they do in eager."""
        broken = self.compilation.program.way == GRAPH_BREAKS
        return self.compilation.way.exact or (broken and self.name in PLANNED)

    def _other_bits(
        self, eager: Sequence[CallState], compiled: Sequence[CallState]
    ) -> Deviation | None:
        """Return the first call whose bits the relation changes compiled, but not in eager."""
        plain = replace(self.compilation, program=self.compilation.program.without(GRAPH_BREAKS))
        same_in_eager = [bits_of([state]) for state in plain.eager()] == [
            bits_of([state]) for state in eager
        ]
        if not same_in_eager:
            return None
        states = zip(eager, plain.compiled(), compiled, strict=False)
        for place, (right, one, other) in enumerate(states):
            if right.error is not None:
                return None
            if bits_of([one]) != bits_of([other]):
                detail = "the bits are not those of the program without the relation"
                return Deviation(place, "other bits", detail, "forward")
        return None

    def _in_processes(self, eager: Sequence[CallState]) -> ProgramVerdict:
        """Return the verdict on processes that share their caches."""
        with tempfile.TemporaryDirectory(prefix="caches-", dir=self.compilation.path.parent) as top:
            shared = Path(top) / "shared"
            others = replace(self.compilation, program=neighbour(self.compilation.program))
            self._answer(PythonJudging(others, self.name), eager, shared)
            first = self._answer(self, eager, shared)
            if first.verdict.status is not Status.PASSED:
                cold = self._answer(self, eager, Path(top) / "cold").verdict
                return _renamed(first.verdict, "caches of another program", cold)
            second = self._answer(self, eager, shared)
            if second.verdict.status is not Status.PASSED:
                return _renamed(second.verdict, "second process", first.verdict)
            if second.left == first.left:
                return second.verdict
            again = [self._answer(self, eager, f).left for f in (Path(top) / "cold", shared)]
            if again != [first.left, second.left]:
                return ProgramVerdict(Status.DISCARDED, message="bits differ by chance")
        message = "the second process, with warm caches, gives other bits or compiles otherwise"
        return failed(Outcome(Kind.WRONG, "forward", "forward | second process: bits", message))

    @staticmethod
    def _answer(judging: PythonJudging, eager: Sequence[CallState], caches: Path) -> ProcessAnswer:
        """Return what a process of its own says of a program, with the caches of a folder."""

        def judge() -> tuple[ProgramVerdict, Sequence[CallState]]:
            states = judging.compilation.compiled()
            return judging._judged(eager, first_deviation(eager, states, judging._planned)), states

        judging.compilation.notify("forward")
        return in_fresh_process(judge, caches)

    @property
    def _planned(self) -> str:
        """The backend that plans strides; none for an exported program and for joined results."""
        way = self.compilation.way
        return "" if way.exports or way.relation else self.name

    def _outcome(self, found: Deviation, eager: Sequence[CallState]) -> Outcome:
        """Return the deviation as a failure, and whether a fresh capture does not have it."""
        if found.error is not None:
            cause = root_cause(found.error)
            place = f"{self.compilation.path.parent.name}/"  # which only this worker has
            signature = exception_signature(found.error, found.phase).replace(place, "")
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


def _renamed(found: ProgramVerdict, cause: str, cold: ProgramVerdict) -> ProgramVerdict:
    """Return a failure, which names the caches as its cause unless it occurs without them."""
    if found.status is not Status.FAILED or cold.signature == found.signature:
        return found
    phase, _, what = found.signature.partition(" | ")
    return msgspec.structs.replace(found, signature=f"{phase} | {cause}: {what}")


def _requires_gradient(state: CallState) -> bool:
    """Return whether a tensor of a state requires a gradient."""
    return any("requires_grad" in str(state.state.nodes[place].value) for place in state.layouts)


def _has_parameters(state: CallState) -> bool:
    """Return whether a leaf other than the arguments requires a gradient."""
    nodes = state.state.nodes
    arguments = {place for name, place in nodes[0].children if name in ("x", "y")}
    return any(
        "requires_grad" in str(nodes[place].value) and not layout.recorded
        for place, layout in state.layouts.items()
        if place not in arguments
    )
