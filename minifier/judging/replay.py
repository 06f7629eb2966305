"""Run a case here and now, eagerly and compiled, and say how the compiled run ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import restored
from tcdebug.minifier.cases.case import Case, CaseInput, clone_values, flatten
from tcdebug.minifier.cases.lineage import Change, leaves
from tcdebug.minifier.cases.outcome import Kind, Outcome, exception_signature, root_cause
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.compare import Difference, Referee, first_difference
from tcdebug.minifier.judging.draws import with_equal_draws
from tcdebug.minifier.judging.layout import layout_difference
from tcdebug.minifier.targets import Target

SEED = 1234
REFERENCED = (Referee.DEFAULT, Referee.LAYOUT)
"""Referees that ask a float64 run about what they call wrong."""
Notify = Callable[[str], None]


@dataclass(frozen=True)
class Results:
    """What one run gave: outputs, gradients of the inputs, and the inputs as it left them."""

    outputs: list[Any]
    gradients: list[Any]
    inputs: list[Any]


class Called(Protocol):
    """What a graph is called with: a case, or any other inputs."""

    @property
    def inputs(self) -> tuple[CaseInput, ...]: ...

    def values(self) -> list[Any]: ...


def run(
    call: Callable[..., Any],
    case: Called,
    notify: Notify = lambda phase: None,
    *,
    dtype: torch.dtype | None = None,
    mark: bool = False,
) -> Results:
    """Call a graph on fresh copies of its inputs, and backward where gradients are wanted.

    The cotangents are seeded; with `dtype`, floats are converted to it first.
    """
    values = clone_values(case.values(), _converting(dtype) if dtype else None)
    if mark:
        for spec, value in zip(case.inputs, values, strict=True):
            for dim in spec.dynamic:
                torch._dynamo.maybe_mark_dynamic(value, dim)
    wanted = leaves(values)
    torch.manual_seed(SEED)
    notify("forward")
    with restored():
        outputs = flatten(call(*values))
    finish_kernels()
    gradients: list[Any] = []
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if wanted and roots and torch.is_grad_enabled():
        notify("backward")
        gradients = list(
            torch.autograd.grad(roots, wanted, cotangents(roots), allow_unused=True)
        )
        finish_kernels()
    return Results([_detached(o) for o in outputs], gradients, [_detached(v) for v in values])


def finish_kernels() -> None:
    """Wait for the kernels of a GPU: what fails or hangs in one does so here. Raises its error."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        torch.cuda.synchronize()


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _converting(dtype: torch.dtype) -> Change:
    """Floats of this dtype in place of those that there are."""
    return lambda memory: memory.to(
        dtype if memory.is_floating_point() else memory.dtype, copy=True
    )


def cotangents(roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What backward begins with: the same noise for equal outputs."""
    generator = torch.Generator().manual_seed(SEED)
    made: list[torch.Tensor] = []
    for root in roots:
        noise = torch.randn(root.shape, generator=generator, dtype=torch.float64)
        made.append(noise.to(device=root.device, dtype=root.dtype))
    return made


class Extra(Protocol):
    """A judgement made while the compiled program is still in force, on what runs correctly."""

    def __call__(
        self,
        case: Case,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        compiles: Callable[[], int],
    ) -> Outcome: ...


@dataclass
class Progress:
    """Which phase a run is in, and how often a graph has been compiled."""

    notify: Notify
    phase: str = ""
    compiles: int = 0

    def follow(self, phase: str) -> None:
        """The next phase."""
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
    """Run a case eagerly and through a target under toggles, and compare.

    Without a referee nothing is compared; `extra` then has the last word.
    """
    notify("eager")
    module = load(case, filename)
    try:
        eager = run(module, case)
    except Exception as error:
        return Outcome(Kind.INVALID, "eager", message=f"{type(error).__name__}: {error}")
    at = Progress(notify)
    at.follow("capture")
    module_again = load(case, filename)
    found = Outcome(Kind.OK)
    try:
        with fresh_capture(), target.compiled(module_again, toggles, at.follow) as compiled:
            actual = run(compiled, case, _after_compile(at.follow), mark=True)
            if extra is not None and at.compiles:
                found = extra(case, module, compiled, lambda: at.compiles)
    except Exception as error:
        cause = root_cause(error)
        message = f"{type(cause).__name__}: {cause}"
        if at.phase == "capture":
            return Outcome(Kind.INVALID, at.phase, message=f"not captured again: {message}")
        signature = exception_signature(error, at.phase)
        return Outcome(Kind.EXCEPTION, at.phase, signature, message)
    if at.phase == "capture":
        return Outcome(Kind.INVALID, at.phase, message="Dynamo found nothing to compile in it")
    if referee is not None:
        found = compare(case, module, eager, actual, referee)
    return found


def _after_compile(follow: Notify) -> Notify:
    """The first call compiles: it is the target that says when the forward run begins."""
    return lambda phase: follow(phase) if phase == "backward" else None


@contextlib.contextmanager
def fresh_capture() -> Iterator[None]:
    """Dynamo without memory of earlier compiles, and with its errors raised."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=False):
        yield


def compare(
    case: Case,
    module: torch.nn.Module,
    eager: Results,
    actual: Results,
    referee: Referee = Referee.DEFAULT,
) -> Outcome:
    """The outcome of two runs: forward first, for a wrong forward makes backward wrong too."""
    found = _wrong(eager, actual, None, referee) if referee is not Referee.FP64 else None
    if referee is Referee.FP64 or (found is not None and referee in REFERENCED):
        reference = _reference(case, module)
        if reference is not None:
            found = _wrong(eager, actual, reference, referee)
        elif referee is Referee.FP64:
            return Outcome(Kind.INVALID, "eager", message="there is no float64 run to compare with")
    if found is None and referee is Referee.LAYOUT:
        found = _laid_out_wrong(eager, actual)
    if found is None:
        return Outcome(Kind.OK)
    phase, difference = found
    signature = f"{phase} | wrong {difference.what}"
    return Outcome(Kind.WRONG, phase, signature, f"{difference.where}: {difference.detail}")


def _laid_out_wrong(eager: Results, actual: Results) -> tuple[str, Difference] | None:
    runs = ((eager.outputs, eager.inputs), (actual.outputs, actual.inputs))
    found = layout_difference(*runs)
    return None if found is None else ("forward", found)


def _wrong(
    eager: Results, actual: Results, reference: Results | None, referee: Referee
) -> tuple[str, Difference] | None:
    for phase, what in (("forward", "output"), ("forward", "input"), ("backward", "gradient")):
        name = f"{what}s"
        exact: list[Any] | None = getattr(reference, name) if reference else None
        if exact is not None and len(exact) != len(getattr(eager, name)):
            exact = None
        found = first_difference(
            getattr(eager, name), getattr(actual, name), exact, what, referee
        )
        if found is not None:
            return phase, found
    return None


def _reference(case: Case, module: torch.nn.Module) -> Results | None:
    """A float64 run that draws what eager draws; None where the graph insists on its dtypes."""

    def widened() -> Results:
        for value in [*module.buffers(), *module.parameters()]:
            if value.is_floating_point():
                value.data = value.data.double()
        return run(module, case, dtype=torch.float64)

    try:
        return with_equal_draws(lambda: run(module, case), widened, seed=SEED)
    except Exception:
        return None
