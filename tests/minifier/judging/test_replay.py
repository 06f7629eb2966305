"""One case, eagerly and compiled, in this process: how the compiled run ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from torch import fx
from torch._dynamo import guards
from torch._higher_order_ops import scan
from torch_versions import needs_torch

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.float64_graphs import in_float64
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.criteria import ORACLES, VALIDATION, Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.compare import Referee
from tcdebug.minifier.judging.replay import SEED, compare, fresh_capture, judge, run
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.subjects.judges import judge_of
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.backends import DECOMPOSING, Backend


def program(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).tanh().sum(-1)


def judged(
    case: Case, target: Target, folder: Path, toggles: Toggles | None = None
) -> tuple[Outcome, list[str]]:
    phases: list[str] = []
    outcome = judge(case, target, toggles or Toggles(), phases.append, str(folder / "case.py"))
    return outcome, phases


def test_a_correct_backend_passes_through_all_phases(tmp_path: Path) -> None:
    case = captured(program, torch.randn(3, 4, requires_grad=True))
    outcome, phases = judged(case, backends.target(backends.right), tmp_path)
    assert outcome == Outcome(Kind.OK)
    assert phases == ["eager", "capture", "compile", "forward", "backward"]


def test_without_gradients_there_is_no_backward(tmp_path: Path) -> None:
    case = captured(program, torch.randn(3, 4))
    outcome, phases = judged(case, backends.target("eager"), tmp_path)
    assert outcome.kind is Kind.OK
    assert phases == ["eager", "capture", "compile", "forward"]


def test_a_result_that_is_rounded_differently_passes_and_says_so(tmp_path: Path) -> None:
    case = captured(program, torch.linspace(-3, 3, 64).view(8, 8))
    other, _ = judged(case, backends.target(in_float64), tmp_path)
    same, _ = judged(case, backends.target("eager"), tmp_path)
    assert (other.kind, other.rounded) == (Kind.OK, True)
    assert (same.kind, same.rounded) == (Kind.OK, False)


def test_a_wrong_number_is_a_wrong_forward(tmp_path: Path) -> None:
    case = captured(program, torch.zeros(2, 4))
    outcome, _ = judged(case, backends.target(backends.wrong), tmp_path)
    assert outcome.kind is Kind.WRONG
    assert outcome.signature == "forward | wrong value"
    assert outcome.message == (
        "output 0: 2 of 2 out of tolerance, worst 2.92423439 instead of 3.04637671"
    )


def test_a_wrong_gradient_is_a_wrong_backward(tmp_path: Path) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *values: [Doubled.apply(v) for v in module(*values)]

    case = captured(program, torch.randn(2, 4, requires_grad=True))
    outcome, _ = judged(case, backends.target(backend), tmp_path)
    assert outcome.signature == "backward | wrong value"
    assert outcome.direction == "backward"
    assert outcome.message.startswith("gradient 0: 8 of 8 out of tolerance")


def test_an_input_that_should_have_been_written_is_reported(tmp_path: Path) -> None:
    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *values: module(*[v.clone() for v in values])

    case = captured(lambda x: x.add_(1).sum(), torch.zeros(3))
    outcome, _ = judged(case, backends.target(backend), tmp_path)
    assert outcome.signature == "forward | wrong value"
    assert outcome.message.startswith("input 0: 3 of 3 out of tolerance")


@pytest.mark.parametrize(
    ("backend", "phase", "message"),
    [
        (backends.raises, "compile", "no tanh among # nodes"),
        (backends.raises_late, "forward", "in the compiled program"),
    ],
)
def test_an_exception_is_reported_with_its_phase(
    backend: Any, phase: str, message: str, tmp_path: Path
) -> None:
    outcome, _ = judged(captured(program, torch.ones(2)), backends.target(backend), tmp_path)
    assert outcome.kind is Kind.EXCEPTION
    assert outcome.phase == phase
    place = "support/backends.py:" + ("raises" if phase == "compile" else "call")
    assert outcome.signature == f"{phase} | Planted | {place} | {message}"
    assert outcome.message.startswith("Planted: ")


def test_a_case_on_which_eager_fails_is_invalid(tmp_path: Path) -> None:
    case = captured(lambda x: x.view(4), torch.ones(4))
    name = case.inputs[0].name
    broken = case.with_inputs({name: CaseInput(name, torch.ones(3))})
    outcome, phases = judged(broken, backends.target("eager"), tmp_path)
    assert outcome.kind is Kind.INVALID
    assert outcome.message.startswith("RuntimeError: shape '[4]' is invalid")
    assert phases == ["eager"]


def test_a_graph_in_which_dynamo_finds_nothing_is_invalid(tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output((graph.call_method("size", (graph.placeholder("x"), 0)),))
    case = Case(fx.GraphModule({}, graph), (CaseInput("x", torch.ones(3)),))
    outcome, phases = judged(case, backends.target("eager"), tmp_path)
    found = "Dynamo found nothing to compile in it"
    assert outcome == Outcome(Kind.INVALID, "capture", "", found)
    assert phases == ["eager", "capture"]


@needs_torch("2.12", "the gradient of the closure is lost or the program is rejected")
@pytest.mark.parametrize(
    "name",
    [
        "eager",
        pytest.param("aot_eager", marks=needs_torch("2.13", "its backward raises an exception")),
    ],
)
def test_scans_one_after_another_are_judged_with_their_gradients(name: str, tmp_path: Path) -> None:
    weight = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)

    def twice(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = scan(lambda c, row: (c * weight + row, (c * row).clone()), torch.ones(3), x)[1]
        return x

    case = captured(twice, torch.ones(4, 3))
    outcome, phases = judged(case, backends.target(name), tmp_path)
    assert outcome == Outcome(Kind.OK)
    assert phases == ["eager", "capture", "compile", "forward", "backward"]


class Combine(torch.nn.Module):
    """The combine function of a scan as a module that fx has not traced."""

    def forward(self, carry: torch.Tensor, row: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum and the product."""
        return [carry + row, carry * row]


def test_a_graph_that_dynamo_cannot_capture_is_invalid(tmp_path: Path) -> None:
    graph = fx.Graph()
    first, rows = graph.placeholder("first"), graph.placeholder("rows")
    given = (graph.get_attr("combine"), [first], [rows], [])
    graph.output((graph.call_function(torch.ops.higher_order.scan, given),))
    inputs = (CaseInput("first", torch.zeros(3)), CaseInput("rows", torch.ones(4, 3)))
    case = Case(fx.GraphModule({"combine": Combine()}, graph), inputs)
    outcome, phases = judged(case, backends.target("eager"), tmp_path)
    assert (outcome.kind, outcome.phase) == (Kind.INVALID, "capture")
    assert outcome.message.startswith("not captured again: AssertionError")
    assert phases == ["eager", "capture"]


@torch.compiler.disable
def not_traced(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_a_graph_that_dynamo_captures_in_parts_is_invalid(tmp_path: Path) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    before = graph.call_method("sin", (x,))
    between = graph.call_function(not_traced, (before,))
    graph.output((graph.call_method("cos", (between,)),))
    case = Case(fx.GraphModule({}, graph), (CaseInput("x", torch.zeros(3)),))
    outcome, phases = judged(case, backends.target("eager"), tmp_path)
    assert (outcome.kind, phases) == (Kind.INVALID, ["eager", "capture"])
    assert outcome.message.startswith("not captured again: Unsupported")


@pytest.mark.parametrize("name", ["tcdebug", "inductor", "aot_eager_decomp_partition", "eager"])
def test_a_case_passes_with_everything_off(name: str, tmp_path: Path) -> None:
    case = captured(program, torch.ones(2, 3))
    off = Toggles.parse(["all"])
    assert judged(case, backends.target(name), tmp_path, off)[0].kind is Kind.OK


def test_switching_off_a_layer_removes_the_backend(tmp_path: Path) -> None:
    case = captured(program, torch.ones(2, 3))
    target = Backend(broken, "broken")
    assert judged(case, target, tmp_path, Toggles())[0].kind is Kind.EXCEPTION
    off = Toggles.parse(["layer.backend"])
    assert judged(case, target, tmp_path, off)[0].kind is Kind.OK


@pytest.mark.parametrize(("name", "off"), [(DECOMPOSING, []), ("broken", ["layer.backend"])])
def test_a_backend_with_the_decompositions_of_inductor_draws_as_eager(
    name: str, off: list[str], tmp_path: Path
) -> None:
    """By default, inductor's decomposition of dropout draws other numbers than eager."""
    case = captured(lambda x: torch.nn.functional.dropout(x, 0.5), torch.ones(64))
    target = Backend(broken if name == "broken" else name, name)
    assert judged(case, target, tmp_path, Toggles.parse(off))[0].kind is Kind.OK


def broken(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    raise NotImplementedError("this backend compiles nothing")


def test_every_run_draws_the_same_numbers(tmp_path: Path) -> None:
    case = captured(lambda x: x + torch.rand(3), torch.zeros(3))
    first, second = (run(load(case, str(tmp_path / "r.py")), case) for _ in range(2))
    torch.manual_seed(SEED)
    assert torch.equal(first.outputs[0], torch.rand(3))
    assert torch.equal(first.outputs[0], second.outputs[0])


def test_inputs_of_a_case_are_not_written(tmp_path: Path) -> None:
    x = torch.zeros(3)
    results = run(lambda v: v.add_(1), Case(fx.GraphModule({}, fx.Graph()), (CaseInput("x", x),)))
    assert results.inputs[0].tolist() == [1.0, 1.0, 1.0]
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_a_float64_run_excuses_a_result_that_is_no_worse_than_eager(tmp_path: Path) -> None:
    """Eager cancels to 0 in float32, but a fused program need not."""
    case = captured(lambda x: (x + 1e8) - 1e8, torch.full((4,), 0.7))
    module = load(case, str(tmp_path / "c.py"))
    eager = run(module, case)
    better = run(lambda x: (x.double() + 1e8 - 1e8).float(), case)
    assert eager.outputs[0].tolist() == [0.0] * 4
    assert compare(case, module, eager, better) == Outcome(Kind.OK)
    worse = run(lambda x: x + 100, case)
    assert compare(case, module, eager, worse).signature == "forward | wrong value"


# -- oracles --------------------------------------------------------------------------------


def rounded(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """Within tolerance of eager, but less accurate."""
    return lambda *values: tuple(o * 1.00005 for o in graph(*values))


def makes_nan(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """Returns NaN instead of numbers."""
    return lambda *values: tuple(o * float("nan") for o in graph(*values))


@pytest.mark.parametrize(
    ("backend", "wrong_for"),
    [
        (backends.right, set()),
        (rounded, {"fp64"}),
        (backends.wrong, {"default", "eager", "fp64", "layout"}),
        (makes_nan, {"default", "eager", "fp64", "layout", "nan"}),
    ],
)
def test_an_oracle_looks_for_its_own_kind_of_failure(
    backend: Any, wrong_for: set[str], tmp_path: Path
) -> None:
    case = captured(lambda x: (x + 1).tanh(), torch.ones(3))
    found = {
        name: judge_of(Criteria(name), Candidates(Backend(backend, "own"), Ambient()), tmp_path)(
            case, Toggles(), lambda phase: None
        )
        for name in ORACLES
        if name not in ("perf", "compile-time")
    }
    assert {name for name, outcome in found.items() if outcome.failed} == wrong_for


def test_an_exception_fails_under_most_oracles_and_counts_under_some(
    tmp_path: Path,
) -> None:
    case = captured(lambda x: (x + 1).tanh(), torch.ones(3))
    candidates = Candidates(backends.target(backends.raises), Ambient())
    counted = set()
    for name in ORACLES:
        if name == VALIDATION:
            continue
        wanted = Criteria(name)
        outcome = judge_of(wanted, candidates, tmp_path)(case, Toggles(), lambda phase: None)
        assert outcome.kind is Kind.EXCEPTION
        if wanted.counts(outcome):
            counted.add(name)
    assert counted == {"default", "crash", "eager", "fp64", "layout"}


def test_a_failure_in_eager_is_invalid_even_if_nothing_is_compared(tmp_path: Path) -> None:
    case = captured(lambda x: x.view(2, 2), torch.ones(4))
    broken_case = case.with_inputs({i.name: CaseInput(i.name, torch.ones(3)) for i in case.inputs})
    candidates = Candidates(backends.target("eager"), Ambient())
    judge_crash = judge_of(Criteria("crash"), candidates, tmp_path)
    assert judge_crash(broken_case, Toggles(), lambda phase: None).kind is Kind.INVALID


def test_a_graph_without_a_float64_run_is_invalid_for_fp64(tmp_path: Path) -> None:
    class Insists(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype is torch.float32
            return x

    case = captured(lambda x: x + 1, torch.ones(3))
    results = run(lambda x: x + 1, case)
    outcome = compare(case, Insists(), results, results, Referee.FP64)
    assert (outcome.kind, outcome.message) == (
        Kind.INVALID, "there is no float64 run to compare with"
    )  # fmt: skip


def test_a_judged_compile_does_not_time_its_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(*_: object) -> float:
        raise AssertionError

    monkeypatch.setattr(guards, "profile_guard_manager", timed)
    with fresh_capture():
        torch.compile(torch.neg, backend="eager")(torch.ones(1))
    assert guards.profile_guard_manager is timed  # type: ignore[attr-defined] # imported there
