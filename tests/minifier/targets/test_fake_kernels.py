"""Fake kernels of operators that do not describe the results are corrected, named and bisected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.fake_kernels import described, find_fake_kernels
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import Rate
from tcdebug.minifier.targets import autograd

aten = torch.ops.aten
Kernel = Callable[..., Any]
CUMSUM = "autograd.fake_kernel.aten.cumsum.default"


@pytest.fixture
def fake_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[OpOverload, Kernel], None]]:
    """Replace the fake kernels of operators of torch."""
    replaced: list[OpOverload] = []

    def forget_results() -> None:
        FakeTensorMode.cache_clear()
        for operator in replaced:
            operator._dispatch_cache.clear()

    def replace(operator: OpOverload, kernel: Kernel) -> None:
        replaced.append(operator)
        monkeypatch.setitem(operator.py_kernels, DispatchKey.Meta, kernel)
        forget_results()

    yield replace
    monkeypatch.undo()
    forget_results()


def compiled(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], *toggles: str, **options: Any
) -> tuple[Any, list[Decision]]:
    """Return the result of a compiled call, and the decisions on fake kernels."""
    torch._dynamo.reset()
    with autograd.switched(Toggles.parse(toggles), EventLog(None)) as gate:
        result = torch.compile(function, **options)(*inputs)
    return result, gate.decisions


def wrong_in(function: Callable[..., Any], *inputs: torch.Tensor) -> list[tuple[str, str]]:
    """Return the units whose fake kernels are found wrong, and how."""
    backend = "aot_eager_decomp_partition"
    _, decisions = compiled(function, inputs, "autograd.fake_kernel", backend=backend)
    return [(d.unit, d.subject) for d in decisions if d.unit.startswith("autograd.fake_kernel.")]


def transposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="meta").t()


def in_double(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float64, device="meta")


def sorted_columns(x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return transposed(x), torch.empty(x.shape, dtype=torch.int64, device="meta")


def scan(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * 2, 0) + 1


def only_scan(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, 0)


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x)[0].exp()


@pytest.mark.parametrize("gradients", [False, True])
def test_no_fake_kernel_is_wrong_if_all_describe_the_results(gradients: bool) -> None:
    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        product = torch.nn.functional.layer_norm(x @ weight, (4,)).transpose(0, 1)
        values = torch.sort(product.softmax(-1))[0].cumsum(0)[1:].new_empty(0, 3), x.t()
        return values[1].flip(0).expand(2, 4, 4).sum(1)

    inputs = [torch.rand(4, 4).requires_grad_(gradients) for _ in range(2)]
    assert wrong_in(block, *inputs) == []


@pytest.mark.parametrize(
    ("operator", "kernel", "function", "expected"),
    [
        (aten.cumsum.default, transposed, scan, "strides [1, 4] instead of [4, 1]"),
        (aten.cumsum.default, in_double, scan, "dtype torch.float64 instead of torch.float32"),
        (aten.sort.default, sorted_columns, rows, "strides [1, 4] instead of [4, 1]"),
    ],
)
def test_a_wrong_fake_kernel_is_named_with_what_differs(
    fake_kernel: Callable[[OpOverload, Kernel], None],
    operator: OpOverload,
    kernel: Kernel,
    function: Callable[..., Any],
    expected: str,
) -> None:
    fake_kernel(operator, kernel)
    assert wrong_in(function, torch.rand(4, 4)) == [(f"autograd.fake_kernel.{operator}", expected)]


def test_a_wrong_fake_kernel_in_backward_is_named(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    fake_kernel(aten.scatter_add.default, transposed)
    x, places = torch.rand(4, 4, requires_grad=True), torch.zeros(4, 4, dtype=torch.int64)
    wrong = wrong_in(lambda x, places: torch.gather(x, 0, places), x, places)
    assert wrong == [
        ("autograd.fake_kernel.aten.scatter_add.default", "strides [1, 4] instead of [4, 1]")
    ]


def test_strides_of_dimensions_without_steps_do_not_matter(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    def other_strides(x: torch.Tensor, *args: Any) -> torch.Tensor:
        return torch.empty_strided(x.shape, (9, 1), dtype=x.dtype, device="meta")

    fake_kernel(aten.cumsum.default, other_strides)
    assert wrong_in(scan, torch.rand(1, 4)) == []
    assert wrong_in(scan, torch.rand(4, 0)) == []
    assert len(wrong_in(scan, torch.rand(2, 4))) == 1


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "tcdebug", "inductor"])
def test_a_program_without_a_wrong_fake_kernel_has_the_strides_of_eager(
    fake_kernel: Callable[[OpOverload, Kernel], None], backend: str
) -> None:
    fake_kernel(aten.cumsum.default, transposed)
    x = torch.rand(4, 4)
    result, _ = compiled(only_scan, (x,), CUMSUM, backend=backend)
    assert result.stride() == (4, 1)
    torch.testing.assert_close(result, torch.cumsum(x, 0))
    if backend == "tcdebug":  # the others return what the kernel of eager returns
        result, _ = compiled(only_scan, (x,), backend=backend)
        assert result.stride() == (1, 4)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: x * 2, (torch.rand(4),), []),
        (lambda x: torch.rand_like(x), (torch.rand(4),), []),
        (lambda x, i: x[i], (torch.rand(4, 3), torch.tensor([[0, 1], [2, 3], [1, 1]])), []),
        (lambda x, i: x[i], (torch.rand(4, 3), torch.tensor([True, False, True, True])), []),
        (lambda x: torch.linalg.inv(x), (torch.eye(3) * 2,), []),
        (lambda x: x.to_sparse().to_dense(), (torch.eye(3),), []),
    ],
)
def test_operators_that_cannot_be_run_on_zeros_are_left_alone(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], expected: list[tuple[str, str]]
) -> None:
    assert wrong_in(function, *inputs) == expected


@pytest.mark.parametrize(("namespace", "checked"), [("planted_c10d", False), ("planted", True)])
def test_an_operator_that_waits_for_other_ranks_runs_only_where_the_program_calls_it(
    namespace: str, checked: bool
) -> None:
    called: list[bool] = []

    @torch.library.custom_op(f"{namespace}::sent", mutates_args=())
    def sent(x: torch.Tensor) -> torch.Tensor:
        called.append(bool(x.any()))
        return x.clone()

    sent.register_fake(torch.empty_like)
    assert wrong_in(lambda x: sent(x) * 2, torch.rand(4)) == []
    assert called.count(True) == 1, "the call of the program"
    assert (False in called) == checked, "calls with zeros"


def test_no_fake_kernel_is_consulted_unless_a_toggle_names_it() -> None:
    _, decisions = compiled(scan, (torch.rand(4, 4),), "layer.decompositions", backend="aot_eager")
    assert not any(d.unit.startswith("autograd.fake_kernel") for d in decisions)


class Candidate:
    """A function whose result must have the strides of eager, run by run."""

    contradicted = False
    passes = 0

    def __init__(self, function: Callable[..., Any], *inputs: torch.Tensor) -> None:
        self.function, self.inputs = function, inputs
        self.asked: list[str] = []
        self.measured = Rate(4, 4)

    def require_passes(self, passes: int) -> None:
        self.passes = passes

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        return self.measured

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        self.asked.append(purpose)
        texts = toggles.texts()
        result, decisions = compiled(self.function, self.inputs, *texts, backend="tcdebug")
        right = result.stride() == self.function(*self.inputs).stride()
        kind = Kind.OK if right else Kind.WRONG
        return Outcome(kind, "forward", "" if right else "strides", decisions=tuple(decisions))


FAILURE = Outcome(Kind.WRONG, "forward", "strides")


def test_of_several_wrong_fake_kernels_only_those_at_fault_are_named(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    fake_kernel(aten.cumsum.default, transposed)
    fake_kernel(aten.sort.default, sorted_columns)
    candidate = Candidate(lambda x: torch.cumsum(x * torch.sort(x)[0].sum(), 0), torch.rand(4, 4))
    (fault,) = find_fake_kernels(candidate, Toggles(), FAILURE, 0.99)
    assert fault.unit == CUMSUM
    assert described(fault) == (
        "the fake kernel of aten.cumsum.default, which compilers trust, gives strides [1, 4] "
        "instead of [4, 1]"
    )


def test_a_wrong_fake_kernel_that_does_not_make_it_fail_is_not_named(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    fake_kernel(aten.cumsum.default, transposed)
    fails_anyway = Candidate(scan, torch.rand(4, 4))
    fails_anyway.ask = lambda toggles, purpose: FAILURE  # type: ignore[method-assign] # a fault elsewhere
    assert find_fake_kernels(fails_anyway, Toggles(), FAILURE, 0.99) == ()


def test_a_program_whose_fake_kernels_are_right_names_none_after_one_run() -> None:
    candidate = Candidate(scan, torch.rand(4, 4))
    assert find_fake_kernels(candidate, Toggles(), FAILURE, 0.99) == ()
    assert candidate.asked == ["with all fake kernels corrected"]


def test_a_pass_is_repeated_if_the_failure_is_flaky_and_does_not_count_if_it_is_too_rare(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    fake_kernel(aten.cumsum.default, transposed)
    flaky = Candidate(scan, torch.rand(4, 4))
    flaky.measured = Rate(6, 12)
    assert [f.unit for f in find_fake_kernels(flaky, Toggles(), FAILURE, 0.99)] == [CUMSUM]
    assert flaky.passes > 4
    rare = Candidate(scan, torch.rand(4, 4))
    rare.measured = Rate(0, 12)
    assert find_fake_kernels(rare, Toggles(), FAILURE, 0.99) == ()
