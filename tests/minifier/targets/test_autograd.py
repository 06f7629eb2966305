"""The units of AOTAutograd: each step that has an alternative, with a fault planted in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._dynamo  # before the next line: they import each other
from torch._C import DispatchKey
from torch._functorch import config
from torch._functorch._aot_autograd import graph_compile, runtime_wrappers
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.nn import functional as F
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.targets import autograd
from tests.compiler.support.programs import PROGRAMS, Program

ALONE = "layer.decompositions"
Make = Callable[[], tuple[Any, ...]]


def compiled(
    function: Callable[..., Any], make: Make, *toggles: str, backend: str = "aot_eager"
) -> tuple[Any, tuple[Any, ...], list[Decision]]:
    """Return the result of a compiled call, its inputs afterwards, and the decisions."""
    torch._dynamo.reset()
    inputs = make()
    with autograd.switched(Toggles.parse(toggles), EventLog(None)) as gate:
        result = torch.compile(function, backend=backend)(*inputs)
    return result, inputs, gate.decisions


def culprits(function: Callable[..., Any], make: Make) -> list[str]:
    """Return the units that a bisection names and confirms, run by run."""
    inputs = make()
    wanted = (function(*inputs), inputs)

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        result, inputs, decisions = compiled(function, make, *toggles.texts())
        try:
            torch.testing.assert_close((result, inputs), wanted)
        except AssertionError:
            kind, signature = Kind.WRONG, "forward | wrong value"
            return Outcome(kind, "forward", signature, decisions=tuple(decisions))
        return Outcome(Kind.OK, decisions=tuple(decisions))

    base = Toggles.parse([ALONE])
    failure = ask(base, "as it is")
    assert failure.failed
    verdict = bisect(ask, failure, base, EventLog(None))
    assert verdict.confirmed
    return verdict.units()


def pixels() -> tuple[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(0, 255, (1, 3, 7, 9), dtype=torch.uint8, generator=generator),)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def test_a_decomposition_that_differs_from_the_kernel_of_eager_is_named() -> None:
    assert culprits(doubled, pixels) == ["autograd.decomposition.aten.upsample_bilinear2d"]


@pytest.mark.parametrize("backend", ["aot_eager", "tcdebug"])
def test_a_named_unit_is_off_together_with_the_units_of_a_backend(backend: str) -> None:
    unit = "autograd.decomposition.aten.upsample_bilinear2d"
    result, _, decisions = compiled(doubled, pixels, unit, backend=backend)
    assert torch.equal(result, doubled(*pixels()))
    assert [d.unit for d in decisions if not d.allowed] == [unit]


def test_units_of_aotautograd_are_not_asked_unless_named() -> None:
    assert compiled(doubled, pixels, "all", "lower")[2] == []


VIEWS: list[tuple[Callable[..., Any], Callable[[torch.Tensor], tuple[torch.Tensor, ...]]]] = [
    (lambda whole, tail: (whole.add_(100), tail[0])[1], lambda t: (t, t[1:])),
    (lambda whole, mid, last: (mid.add_(100), last[0])[1], lambda t: (t, t[1:3], t[2:])),
    (lambda a, b: (a.add_(1), b.select(0, 0), a[0])[1:], lambda t: (t[:3], t[1:])),
    (lambda whole, tail: (whole.add_(1), tail[1], tail.sum())[1:], lambda t: (t, t[2:])),
    (lambda whole, tail: (tail.mul_(3), whole[2], tail[1])[1:], lambda t: (t, t[1:])),
]


@pytest.mark.parametrize("row", range(len(VIEWS)))
def test_an_output_that_is_a_view_of_the_wrong_tensor_leads_to_its_alias(row: int) -> None:
    """torch replays the view of an input on the base that it shares with another input."""
    function, views = VIEWS[row]
    assert culprits(function, lambda: views(torch.arange(24.0).reshape(4, 6).clone())) == [
        "autograd.output_alias"
    ]


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


def test_a_wrong_view_of_a_synthetic_base_is_named() -> None:
    original = runtime_wrappers.gen_alias_from_base

    def shifted(base: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(base, target, *args, **kwargs)
        traced = type(made).__name__ == "FunctionalTensor" and target.storage_offset() > 0
        return made.roll(1, 0) if traced else made

    def function(whole: torch.Tensor, tail: torch.Tensor) -> torch.Tensor:
        whole.add_(100)
        return tail * 2

    def make() -> tuple[torch.Tensor, ...]:
        whole = torch.arange(24.0).reshape(4, 6).clone()
        return whole, whole[1:]

    with replaced(runtime_wrappers, "gen_alias_from_base", shifted):
        assert culprits(function, make) == ["autograd.synthetic_base"]


def test_a_wrongly_functionalised_operator_is_named() -> None:
    original = FunctionalTensorMode.__torch_dispatch__

    def wrong(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mul_.Tensor:
            func = torch.ops.aten.add_.Tensor
        return original(self, func, types, args, kwargs)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.diagonal().mul_(y)
        x[0].add_(y)
        return x.sin()

    with replaced(FunctionalTensorMode, "__torch_dispatch__", wrong):
        named = culprits(function, lambda: (torch.ones(3, 3), torch.full((3,), 4.0)))
    assert named == ["autograd.functionalization.aten.mul_.Tensor"]


def weighted_by_step(x: torch.Tensor, step: int) -> torch.Tensor:
    return x * float(step // 3)


def test_a_wrong_tensor_in_place_of_a_symbolic_number_is_named() -> None:
    original = graph_compile.tensorify_python_scalars

    def planted(gm: Any, *args: Any, **kwargs: Any) -> None:
        original(gm, *args, **kwargs)
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
            node.target = torch.ops.aten.sub.Tensor
        gm.recompile()

    with (
        replaced(graph_compile, "tensorify_python_scalars", planted),
        torch._dynamo.config.patch(assume_static_by_default=False),
    ):
        found = culprits(weighted_by_step, lambda: (torch.ones(4), 14))
    assert found == ["autograd.tensorify_python_scalars"]


@needs_torch("2.12", "one_hot has no decomposition in Python")
def test_a_planted_decomposition_is_named_among_others() -> None:
    kernels = torch.ops.aten.one_hot.default.py_kernels
    key = DispatchKey.CompositeImplicitAutograd
    right = kernels[key]
    torch.ops.aten.one_hot.default.py_kernels[key] = lambda *args: right(*args).flip(-1)
    torch.ops.aten.one_hot.default._dispatch_cache.clear()
    try:
        named = culprits(
            lambda x, y: F.one_hot(x, 4).float() @ y, lambda: (torch.tensor([0, 3]), torch.eye(4))
        )
    finally:
        torch.ops.aten.one_hot.default.py_kernels[key] = right
        torch.ops.aten.one_hot.default._dispatch_cache.clear()
    assert named == ["autograd.decomposition.aten.one_hot"]


class Multiplied(torch.autograd.Function):
    """A product whose gradient is also a product, so that autocast in backward sets its dtype."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return x * weight.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        return gradients[0] @ weight + 0.001, None


def test_autocast_in_backward_is_a_unit_if_autocast_is_on() -> None:
    def gradient(*toggles: str) -> tuple[float, list[Decision]]:
        x = torch.ones(1, 1, requires_grad=True)

        def function(x: torch.Tensor) -> torch.Tensor:
            return Multiplied.apply(x, torch.ones(1, 1))

        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, _, decisions = compiled(function, lambda: (x,), *toggles)
        (found,) = torch.autograd.grad(out, x, torch.full((1, 1), 1.003))
        return found.item(), decisions

    assert gradient(ALONE)[0] == 1.0  # in bfloat16, 1.003 and 1.001 are both 1
    right, decisions = gradient(ALONE, "autograd.backward_autocast")
    assert right == pytest.approx(1.004)
    assert "autograd.backward_autocast" in {d.unit for d in decisions if not d.allowed}


def test_a_setting_that_was_changed_is_a_unit() -> None:
    with config.patch(view_replay_for_aliased_outputs=False):
        decisions = compiled(doubled, pixels, ALONE)[2]
    unit, subject = "autograd.config.view_replay_for_aliased_outputs", "False"
    assert (unit, subject) in {(d.unit, d.subject) for d in decisions}


HELD_BACK: tuple[Program, ...] = (
    *PROGRAMS[::12],
    Program("product", lambda x, y: x @ y, lambda: (torch.eye(3), torch.ones(3, 2))),
    Program("updates", lambda x: (x.diagonal().mul_(2), x.t()[0].fill_(3), x)[2],
            lambda: (torch.ones(4, 4),)),
    Program("unchanged_base", lambda x, y: (x.add_(1), y[0].relu_(), y.view(-1)[3:7])[2],
            lambda: (torch.ones(4, 4), torch.ones(3, 5))),
    Program("bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
            lambda: (torch.arange(24.0).reshape(1, 1, 4, 6),)),
    Program("random", lambda x: x.uniform_() + F.dropout(x), lambda: (torch.ones(16),)),
)  # fmt: skip


def test_with_everything_off_the_results_are_those_of_eager() -> None:
    asked: set[str] = set()
    for program in HELD_BACK:
        torch.manual_seed(0)
        result, inputs, decisions = compiled(program.function, program.inputs, ALONE, "all")
        asked |= {d.unit for d in decisions}
        torch.manual_seed(0)
        eager = program.inputs()
        torch.testing.assert_close((result, inputs), (program.function(*eager), eager))
    assert {"autograd.decomposition.aten.matmul", "autograd.input_mutation"} <= asked


def test_everything_replaced_is_restored() -> None:
    operators = [torch.ops.aten.upsample_bilinear2d.vec, torch.ops.aten.matmul.default]
    before = [dict(operator.py_kernels) for operator in operators]
    compiled(doubled, pixels, ALONE, "all")
    assert [dict(operator.py_kernels) for operator in operators] == before


def second_derivative(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def between_results(results: tuple[torch.Tensor, ...], x: torch.Tensor) -> torch.Tensor:
    middle, end = results
    return torch.autograd.grad(end.sum(), middle)[0]


def through_a_hook(results: tuple[torch.Tensor, ...], x: torch.Tensor) -> torch.Tensor:
    middle, end = results
    middle.register_hook(lambda gradient: gradient * 100)
    return torch.autograd.grad(end.sum(), x)[0]


def row_by_row(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = torch.vmap(lambda v: torch.autograd.grad(y, x, v)[0])
    return torch.as_tensor(rows(torch.eye(3)))


def gradient(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(y.sum(), x)[0]


def chained(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = x.sin()
    return middle, middle.exp() * x


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:].mul_(x[:2])
    return y.view(3, 1).t().sigmoid()


WITHOUT_A_NODE: list[tuple[Callable[..., Any], Callable[..., torch.Tensor], bool]] = [
    (torch.sigmoid, second_derivative, False),
    (written, second_derivative, False),
    (chained, between_results, False),
    (chained, through_a_hook, False),
    (torch.sigmoid, row_by_row, False),
    (lambda x: (x + 1).sin(), gradient, True),
]
"""A function, what is asked of its results, and whether the saved tensors are doubled."""


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp_partition", "tcdebug"])
@pytest.mark.parametrize("row", range(len(WITHOUT_A_NODE)))
def test_autograd_records_a_graph_whose_backward_is_off_as_it_does_in_eager(
    row: int, backend: str
) -> None:
    function, asked, hooked = WITHOUT_A_NODE[row]

    def answer(*toggles: str, compile: bool = True) -> torch.Tensor | None:
        x = torch.tensor([0.5, 1.0, 1.5], requires_grad=True)
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2)
        with hooks if hooked else contextlib.nullcontext():
            if compile:
                results = compiled(function, lambda: (x,), *toggles, backend=backend)[0]
            else:
                results = function(x)
            try:
                return asked(results, x)
            except (RuntimeError, TypeError):
                return None

    right = answer(compile=False)
    assert right is not None
    with_node, without = answer(), answer("autograd.backward")
    assert with_node is None or not torch.allclose(with_node, right)
    torch.testing.assert_close(without, right)


@pytest.mark.parametrize("backend", ["aot_eager", "tcdebug"])
def test_without_backward_of_its_own_a_graph_updates_its_inputs_and_returns_views(
    backend: str,
) -> None:
    def function(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state.add_(x.detach())
        y = x * state
        return y, y[1:], y.detach(), state

    def run(*toggles: str, compile: bool = True) -> tuple[Any, ...]:
        x, state = torch.ones(3, requires_grad=True), torch.arange(3.0)
        if compile:
            results = compiled(function, lambda: (x, state), *toggles, backend=backend)[0]
        else:
            results = function(x, state)
        (found,) = torch.autograd.grad(results[0].sum() + results[1].sum(), x)
        return found, *(r.requires_grad for r in results), results[3] is state, state

    assert str(run("autograd.backward")) == str(run(compile=False))


def test_a_search_in_aotautograd_does_not_decide_its_backward() -> None:
    x = torch.ones(3, requires_grad=True)
    result, _, decisions = compiled(torch.sigmoid, lambda: (x,), ALONE, "all")
    assert "autograd.backward" not in {d.unit for d in decisions}
    assert type(result.grad_fn).__name__ == "CompiledFunctionBackward"
    result = compiled(torch.sigmoid, lambda: (x,), "autograd")[0]
    assert type(result.grad_fn).__name__ == "SigmoidBackward0"
