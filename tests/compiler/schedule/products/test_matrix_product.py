"""Matrix products as loops: fused products compute the same as the calls, or there is a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stages
import torch
import torch.nn.functional as F
from judge import assert_same, copies
from programs import f32
from stages import at_stage, capture

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Extern, Graph
from tcdebug.compiler.ir.verifier import verify
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.schedule.printer import print_schedule
from tcdebug.compiler.schedule.products import product_fusion
from tcdebug.compiler.schedule.products.matrix_product import NotFused
from tcdebug.compiler.schedule.products.product_fusion import ProductFusion, products
from tcdebug.compiler.schedule.stage import schedule_graph
from tcdebug.compiler.schedule.verifier import verify_schedule

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _on_cpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(product_fusion, "DEVICES", ("cpu",))
    yield


OFF = Toggles.parse(["memory.in_place"])
"""As on a GPU, nothing is stored over what is read."""


def scheduled(function: Function, *inputs: Any, **options: Any) -> Schedule:
    """The only graph."""
    with torch.no_grad():
        (schedule,) = capture(function, *inputs, toggles=OFF, **options).schedules
    return schedule


def all_fused(schedule: Schedule) -> Schedule:
    """The schedule with every product fused with everything it can be fused with."""
    fusion = ProductFusion(schedule)
    for extern in products(schedule):
        fusion.take(fusion.forms(extern)[-1])
        verify_schedule(fusion.schedule())
    verify(fusion.schedule().graph)
    return fusion.schedule()


def steps(schedule: Schedule) -> list[str]:
    return [s.name for s in schedule.steps]


half = torch.float16


def written_behind(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The product reads memory that is overwritten before its result is read."""
    y = x @ w
    z = y.sum().sin()
    x.add_(1)
    return (y * z).relu()


PROGRAMS: dict[str, tuple[Function, tuple[Any, ...], list[str]]] = {
    "bias and relu": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        (f32(3, 5, 4), f32(6, 4), f32(6)),
        ["view", "cpp_fused_addmm_relu_3"],
    ),
    "halves": (
        lambda x, w, b: (x @ w + b).relu(),
        (f32(5, 4).to(half), f32(4, 6).to(half), f32(6).to(half)),
        ["cpp_fused_mm_relu_1"],
    ),
    "scaled sum": (
        lambda b, x, w: torch.addmm(b, x, w, beta=2, alpha=0.5) * 3,
        (f32(6), f32(5, 4), f32(4, 6)),
        ["cpp_fused_addmm_mul_1"],
    ),
    "a sum that is not looked at": (
        lambda b, x, w: torch.addmm(b, x, w, beta=0) * 3,
        (torch.full((6,), float("nan")), f32(5, 4), f32(4, 6)),
        ["cpp_fused_addmm_mul_1"],
    ),
    "batches": (
        lambda b, x, y: torch.baddbmm(b, x, y.transpose(1, 2)).tanh(),
        (f32(2, 1, 6), f32(2, 5, 4), f32(2, 6, 4)),
        ["cpp_fused_baddbmm_tanh_2"],
    ),
    "two results": (
        lambda x, w, y: (x @ w + y, (x @ w + y).relu()),
        (f32(5, 4), f32(4, 6), f32(5, 6)),
        ["cpp_fused_mm_add_relu_1"],
    ),
    "a result that is read again": (
        lambda x, w: ((y := x @ w).relu(), y),
        (f32(5, 4), f32(4, 6)),
        ["cpp_fused_mm_relu_1"],
    ),
    "operands that are made": (
        lambda x, w: ((x * 2) @ (w + 1)).relu(),
        (f32(5, 4), f32(4, 6)),
        ["cpp_fused_mm_relu_3"],
    ),
    "both sides transposed, and the result": (
        lambda x, w: (x.t() @ w.t()).t().contiguous() + 1,
        (f32(4, 5), f32(6, 4)),
        ["cpp_fused_mm_add_3"],
    ),
    "one row, and two products": (
        lambda x, a, b: F.silu(x @ a) * (x @ b),
        (f32(1, 4), f32(4, 6), f32(4, 6)),
        ["cpp_mm_0", "cpp_fused_mm_mul_2"],
    ),
    "heads": (
        lambda x, w: (x @ w).view(2, 5, 3, 2).transpose(1, 2) * 2,
        (f32(10, 4), f32(4, 6)),
        ["cpp_fused_mm_mul_1"],
    ),
    "nothing to sum": (lambda x, w: (x @ w) + 1, (f32(5, 0), f32(0, 6)), ["cpp_fused_mm_add_1"]),
    "a softmax between": (
        lambda x, w: torch.softmax(x @ w, -1),
        (f32(5, 4), f32(4, 6)),
        ["cpp_mm_0", "cpp_red_fused_amax_exp_sum_div_1"],
    ),
    "an operand that is written to": (
        written_behind,
        (f32(5, 4), f32(4, 6)),
        ["cpp_mm_0", "cpp_red_fused_sum_sin_relu_1", "cpp_copy_2"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fused_product_computes_the_same_as_the_calls(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, inputs, expected = PROGRAMS[name]
    made: list[Schedule] = []

    def fused(graph: Graph, gate: Gate) -> Schedule:
        made.append(all_fused(schedule_graph(graph, Gate(OFF))))
        return made[-1]

    monkeypatch.setattr(stages, "schedule_graph", fused)
    given, mine = copies(inputs), copies(inputs)
    with torch.no_grad():
        wanted = function(*given)
        assert_same(at_stage("scheduled", function)(*mine), wanted)
    assert_same(mine, given)
    (schedule,) = made
    assert steps(schedule) == expected


def test_sizes_may_be_symbolic() -> None:
    schedule = scheduled(lambda x, w: (x @ w).relu(), f32(5, 4), f32(4, 6), dynamic=True)
    fused = all_fused(schedule)
    (kernel,) = fused.kernels()
    assert all(a.size.constant is None for a in (*kernel.outer, *kernel.inner))


REASONS: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "integers": (
        lambda x, w: (x @ w) + 1,
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64)),
        "no template computes with torch.int64",
    ),
    "doubles": (
        lambda x, w: (x @ w) + 1,
        (f32(2, 3).double(), f32(3, 2).double()),
        "no template computes with torch.float64",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_product_that_no_template_supports_has_a_reason(name: str) -> None:
    function, inputs, reason = REASONS[name]
    schedule = scheduled(function, *inputs)
    fusion = ProductFusion(schedule)
    (extern,) = products(schedule)
    with pytest.raises(NotFused, match=reason):
        fusion.forms(extern)


ALONE: dict[str, tuple[Function, str]] = {
    "a sum": (lambda x, w: (x @ w).sum(-1), "is not pointwise"),
    "other places": (lambda x, w: (x @ w)[1:] * 2, "reads it elsewhere, or later"),
    "itself": (lambda x, w: x @ w, ""),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_product_without_an_epilogue_has_a_reason(name: str) -> None:
    function, reason = ALONE[name]
    schedule = scheduled(function, f32(5, 4), f32(4, 6))
    fusion = ProductFusion(schedule)
    (extern,) = products(schedule)
    (alone,) = fusion.forms(extern)
    said = fusion.why_no_epilogue(alone)
    assert said.endswith(reason) and bool(said) == bool(reason)


def test_an_expensive_operand_is_not_recomputed_for_every_tile() -> None:
    schedule = scheduled(lambda x, w: (x.exp() @ w).relu(), f32(5, 4), f32(4, 6))
    fusion = ProductFusion(schedule)
    (extern,) = products(schedule)
    assert len(fusion.forms(extern)) == 1


def test_a_view_that_only_a_fused_call_read_is_removed() -> None:
    schedule = scheduled(lambda x, w: F.linear(x, w).relu(), f32(5, 4), f32(6, 4))
    assert any(isinstance(s, Extern) and s.alias_of for s in schedule.steps)
    fused = all_fused(schedule)
    assert not any(isinstance(s, Extern) for s in fused.steps)
    assert "load(float32, 'w" not in print_schedule(fused)
