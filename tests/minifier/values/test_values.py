"""`tcdebug values`: the first wrong step is named, and no step of a healthy model is."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from healthy_models import cells, pyramid, rotary
from numerical_faults import EMBEDDED, STOCK, NumericalFault, model, took_effect
from observed_models import (
    Step,
    breaks,
    dropout,
    dynamic,
    in_place,
    observe,
    reductions,
)  # fmt: skip

from tcdebug.compiler.registry import REGISTRY
from tcdebug.minifier.judging.compare import Difference
from tcdebug.minifier.processes.fork import fork_past_handlers
from tcdebug.minifier.values.findings import REPORT, ValuesReport
from tcdebug.minifier.values.graph_check import DECOMPOSED, ROUNDED
from tcdebug.minifier.values.inductor import parameter_roles
from tcdebug.minifier.values.judgement import digest, judged
from tcdebug.minifier.values.reference import Computed


@pytest.mark.parametrize(
    "step",
    [
        breaks,
        dropout,
        *(pytest.param(step, marks=pytest.mark.slow) for step in (dynamic, in_place, reductions)),
    ],
)
def test_no_kernel_of_a_healthy_model_is_wrong(step: Step, tmp_path: Path) -> None:
    report = observe(step, tmp_path, "tcdebug")
    assert report.found is None
    assert report.unexplained == []
    assert report.values > 10


def expm1(compiled: Callable[..., Any]) -> None:
    x = torch.linspace(0.001, 0.3, 64).to(torch.bfloat16).requires_grad_()
    compiled(torch.expm1)(x).sum().backward()


@pytest.mark.parametrize(
    ("decomposed", "is_rounding"),
    [(lambda x: x.exp() + 31 - 32, True), (lambda x: x.exp() - 1.1, False)],
)
def test_a_decomposition_that_rounds_more_than_eager_is_told_from_a_wrong_one(
    decomposed: Callable[[torch.Tensor], torch.Tensor],
    is_rounding: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(REGISTRY.decompositions, torch.ops.aten.expm1.default, decomposed)
    report = observe(expm1, tmp_path, "tcdebug")
    assert report.found is None
    wrong = [DECOMPOSED in text for text in report.unexplained]
    assert wrong == ([] if is_rounding else [True])
    assert any("out of tolerance" in n and ROUNDED in n for n in report.notes) is is_rounding


def nearly(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    return lambda *values: [(out * (1 + 2**-22)) for out in graph(*values)]


@pytest.mark.parametrize(("oracle", "is_found"), [("bitwise", True), ("default", False)])
def test_a_graph_of_another_backend_is_compared_by_the_oracle(
    oracle: str, is_found: bool, tmp_path: Path
) -> None:
    def step(_: Any) -> None:
        torch.compile(torch.sin, backend=nearly)(torch.ones(8))

    report = observe(step, tmp_path, "eager", oracle=oracle)
    assert (report.whole, report.found is not None) == (1, is_found)
    assert report.found is None or report.found.kind == "graph"


def attention(compiled: Callable[..., Any]) -> None:
    x = torch.randn(1, 2, 8, 4, dtype=torch.bfloat16, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    compiled(lambda v: attend(v * 2, v, v + 1))(x).sum().backward()


def test_attention_without_dropout_is_compared(tmp_path: Path) -> None:
    report = observe(attention, tmp_path, "tcdebug")
    assert (report.found, report.unjudged) == (None, {})


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inductor", "tcdebug"])
@pytest.mark.parametrize("step", [cells, pyramid, rotary])
def test_no_kernel_is_wrong_that_rounds_elsewhere_or_writes_parts_of_reused_memory(
    step: Step, backend: str, tmp_path: Path
) -> None:
    report = observe(step, tmp_path, backend)
    assert (report.found, report.unexplained) == (None, [])
    assert report.values > 10


def planted(fault: NumericalFault, folder: Path) -> ValuesReport:
    """Return the report about a fault that is planted in a forked process."""
    if (child := fork_past_handlers()) == 0:  # torch 2.11 refuses backward after os.fork
        try:
            torch.set_num_threads(1)  # before autograd has threads: they would race for a new pool
            fault.plant()
            step = partial(model, blocks=2, dtype=fault.dtype)
            observe(step, folder, fault.backend, twice=fault.twice)
            if not took_effect():
                (folder / REPORT).unlink()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return msgspec.json.decode((folder / REPORT).read_bytes(), type=ValuesReport)


@pytest.mark.parametrize(
    "fault", [f for f in EMBEDDED if f.name in ("a sine in bfloat16", "a result that changes")],
    ids=lambda fault: fault.name,
)  # fmt: skip
def test_the_first_kernel_with_a_planted_fault_is_named(
    fault: NumericalFault, tmp_path: Path
) -> None:
    found = planted(fault, tmp_path).found
    assert found is not None
    assert found.kind == "kernel"
    assert "sin" in found.name
    assert any("aten.sin" in node for node in found.nodes)
    assert any("torch.sin(" in line for line in found.lines)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [*EMBEDDED, *STOCK], ids=lambda f: f"{f.backend}, {f.name}")
def test_planted_numerical_faults_are_named(fault: NumericalFault, tmp_path: Path) -> None:
    found = planted(fault, tmp_path).found
    assert found is not None
    assert found.kind == fault.kind


CPP = """extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{{
    auto tmp0 = Vectorized<float>::loadu(in_out_ptr0 + x0, 16);
    {store}
}}
"""


def test_the_roles_of_parameters_are_read_from_a_kernel() -> None:
    updates = CPP.format(store="tmp0.store(in_out_ptr0 + x0);")
    assert parameter_roles(updates) == ["rw", "r", "w", ""]
    only_reads = CPP.format(store="tmp0.store(out_ptr0 + x0);")
    assert parameter_roles(only_reads) == ["r", "r", "w", ""]
    for alias, use, role in (
        ("out_ptr1", "tmp0.store(out_ptr1 + x0);", "rwf"),
        ("out_ptr1", "out_ptr1[x0] = tmp0;", "rwf"),
        ("out_ptr1", "out_ptr1[x0] = tmp0; tmp1.store(in_out_ptr0 + x0);", "rw"),
        ("in_ptr3", "auto tmp1 = Vectorized<float>::loadu(in_ptr3 + x0, 16);", "r"),
        ("in_ptr3", "auto tmp1 = in_ptr3[x0];", "r"),
        ("in_ptr3", "auto tmp1 = static_cast<float>(in_ptr3[x0]);", "r"),
        ("out_ptr1", "atomic_add(&out_ptr1[x0], tmp0);", "rwf"),
        ("in_ptr3", "tmp0.store(in_out_ptr0 + x0);", "rw"),
    ):
        store = f"auto {alias} = in_out_ptr0;\n    {use}"
        assert parameter_roles(CPP.format(store=store))[0] == role
    triton = "def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):\n    pass"
    assert parameter_roles(triton) == ["r", "w", "", ""]


def test_a_sum_rounded_after_each_term_exceeds_the_bound_for_rounding() -> None:
    torch.manual_seed(0)
    terms = torch.rand(256, 64, dtype=torch.float64).to(torch.bfloat16)
    exact = terms.double().sum(-1)
    eager = terms.float().sum(-1).to(torch.bfloat16)
    rough = torch.zeros(256, dtype=torch.bfloat16)
    for column in terms.unbind(-1):
        rough = rough + column
    computed = Computed(eager, exact, jumps=False, nodes=())
    assert judged(eager, computed, "default", "sum") is None
    found = judged(rough, computed, "default", "sum")
    assert isinstance(found, Difference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("operation", [torch.rsqrt, torch.exp, torch.tanh, torch.log1p])
def test_a_second_rounding_is_found_where_eager_rounds_once(
    operation: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, factor = (torch.rand(32, 64, dtype=torch.float64).to(dtype) for _ in range(2))
    exact = operation(x.double() + 0.5) * factor.double()
    inner = operation(x.float() + 0.5)
    once = (inner * factor.float()).to(dtype)
    twice = (inner.to(dtype).float() * factor.float()).to(dtype)
    fast = (inner * (1 + 2**-20) * factor.float()).to(dtype)  # an approximation with 20 bits
    computed = Computed(once, exact, jumps=False, nodes=())
    assert judged(once, computed, "default", "x") is None
    assert judged(fast, computed, "default", "x") is None
    found = judged(twice, computed, "default", "x")
    assert isinstance(found, Difference)
    assert "further from float64 than one rounding" in found.detail
    rough = Computed(twice, exact, jumps=False, nodes=())
    assert judged(once, rough, "default", "x") is None
    assert judged(twice, rough, "default", "x") is None  # eager rounds twice too


def test_a_second_rounding_inside_an_operator_that_inductor_composes_is_no_fault() -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(64, 64, dtype=torch.float64).to(torch.bfloat16) for _ in range(2))
    exact = x.double() * y.double().sigmoid()
    once = (x.float() * y.float().sigmoid()).to(torch.bfloat16)
    twice = x * y.sigmoid()
    graph = torch.fx.Graph()
    for target, is_wrong in (
        (torch.ops.aten.glu.default, False),
        (torch.ops.aten.mul.Tensor, True),
    ):
        nodes = (graph.call_function(target, ()),)
        found = judged(twice, Computed(once, exact, jumps=False, nodes=nodes), "default", "x")
        assert (found is not None) is is_wrong


def test_the_result_of_a_cancellation_is_not_rounded_again() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 512)
    exact = (x.double() - x.double().mean(1, keepdim=True)).sum(1)  # zero but for rounding
    eager = (x - x.mean(1, keepdim=True)).sum(1).to(torch.bfloat16)
    other = (x - x.mean(1, keepdim=True)).flip(1).sum(1).to(torch.bfloat16)
    computed = Computed(eager, exact, jumps=False, nodes=())
    assert judged(other, computed, "default", "x") is None


def test_infinity_and_nan_are_equal_only_behind_values_that_are_not_finite() -> None:
    eager = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 2.0])
    other = torch.tensor([torch.inf, torch.nan, torch.nan, 1.0, 2.0])
    for finite in (True, False):
        computed = Computed(eager, eager.double(), jumps=False, nodes=(), finite=finite)
        found = judged(other, computed, "default", "x")
        assert (found is not None) is finite
        wrong = torch.tensor([torch.inf, torch.nan, torch.nan, torch.nan, 2.0])
        assert judged(wrong, computed, "default", "x") is not None


def variances(compiled: Callable[..., Any]) -> None:
    x = torch.randn(4, 64, dtype=torch.float16)
    x[1, 3] = torch.inf
    compiled(lambda v: torch.var_mean(v.float() * 2, 1))(x)


def test_rows_that_are_infinite_already_are_not_wrong(tmp_path: Path) -> None:
    report = observe(variances, tmp_path, "tcdebug")
    assert (report.found, report.unexplained) == (None, [])
    assert report.values > 0


def test_a_hash_needs_no_numpy_and_sees_logical_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    def numpy(_: torch.Tensor) -> None:
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    assert digest(torch.tensor([1.0, 2.0])) == "0a108fd7267a5566"
    assert digest(torch.tensor([[1.0, 2.0]]).expand(2, 2)[0]) == "0a108fd7267a5566"
    assert digest(torch.tensor([1 + 2j]).conj()) == "fb5b1f897c7a7fe8"
    assert digest(torch.tensor([1 - 2j])) == "fb5b1f897c7a7fe8"
    assert digest(torch.eye(2).to_sparse()) == ""
