"""Memory that a kernel receives under one name and leaves with the value of another."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.values.inductor import parameter_roles, written_at_once
from tcdebug.minifier.values.judgement import judged
from tcdebug.minifier.values.observation import Observation
from tcdebug.minifier.values.observed_graph import Access, ObservedGraph
from tcdebug.minifier.values.program import ObservedProgram
from tcdebug.minifier.values.reference import ReferenceGraph, Unjudged
from tcdebug.minifier.values.wrapper_code import AFTER, BEFORE, RETURN, Statement, instrument

WRAPPER = """
def call(args):
    x_1, = args
    buf0 = empty_strided_cpu(x_1.shape)
    buf1 = buf0; del buf0  # reuse
    buf2 = empty_strided_cpu(())
    kernel(buf1, x_1, buf2)
    return (buf1, buf2)
"""
"""Inductor planned to update buf0 in place to buf1, which only the kernel itself needs."""
KERNEL = """extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0,
                       float* out_ptr1)
{
    auto out_ptr0 = in_out_ptr0;
    tmp1.store(out_ptr0 + x0);
    auto tmp2 = Vectorized<float>::loadu(out_ptr0 + x0, 16);
    out_ptr1[0] = tmp_acc0;
}
"""


class Kernels:
    """The kernel of the wrapper."""

    def name(self, statement: Statement) -> str:
        return statement.callee if statement.callee == "kernel" else ""

    def access(self, statement: Statement) -> Access | None:
        assert parameter_roles(KERNEL) == ["rwf", "r", "w"]
        return Access(("buf1", "x_1"), ("buf1", "buf2"), ("buf1",))

    def source(self, name: str) -> tuple[str, str]:
        return KERNEL, ""


def computes(x: Tensor) -> tuple[Tensor, Tensor]:
    exponential = x.exp()
    return exponential, (exponential * x).sum()


def found(folder: Path, kernel: Callable[[Tensor, Tensor, Tensor], Any]) -> list[str]:
    """Return the node and the reason of the wrong step, if any; the wrapper calls this kernel."""
    x = torch.linspace(-1, 1, 16)
    module = make_fx(computes, tracing_mode="fake")(x)
    observation = Observation(folder, EventLog(folder), "", "default", False, 3, str, str)
    nodes = {"buf0": "exp", "buf1": "mul", "buf2": "sum_1"}
    tree = ast.parse(WRAPPER)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    statements = instrument(function)
    reference = ReferenceGraph(module)
    graph = ObservedGraph(
        observation, 0, "forward", None, reference, nodes, Kernels(), statements
    )  # fmt: skip
    program = ObservedProgram(graph)
    space: dict[str, Any] = {"kernel": kernel, "empty_strided_cpu": torch.empty}
    space |= dict(zip((BEFORE, AFTER, RETURN), program.hooks(), strict=True))
    exec(compile(tree, "", "exec"), space)
    program.hooked = space["call"]
    program([x])
    assert observation.values + sum(observation.unjudged.values()) >= 2
    wrong = observation.found
    return [] if wrong is None or wrong.value is None else [wrong.value.node, wrong.reason]


def right(first: Tensor, x: Tensor, total: Tensor) -> None:
    first.copy_(x.exp())
    total.copy_((first * x).sum())


def test_memory_holds_the_value_of_the_variable_by_whose_name_it_was_stored(
    tmp_path: Path,
) -> None:
    assert found(tmp_path, right) == []


@pytest.mark.parametrize(("factor", "offset", "node"), [(1.01, 0.0, "exp"), (1.0, 0.1, "sum_1")])
def test_a_wrong_value_in_such_memory_is_found(
    tmp_path: Path, factor: float, offset: float, node: str
) -> None:
    def wrong(first: Tensor, x: Tensor, total: Tensor) -> None:
        right(first, x, total)
        first.mul_(factor)
        total.add_(offset)

    assert found(tmp_path, wrong)[0] == node


def rounding(x: Tensor) -> Tensor:
    return (x + x).float() * 100


@pytest.mark.parametrize(("units", "right"), [(1, True), (2, True), (4, False)])
def test_a_wide_value_may_differ_by_roundings_of_half_types_on_the_way(
    units: int, right: bool
) -> None:
    x = torch.linspace(1, 1.984375, 64).to(torch.bfloat16)
    module: fx.GraphModule = make_fx(rounding, tracing_mode="fake")(x)
    computed = ReferenceGraph(module).compute("mul", {"x_1": x})
    assert computed.exact is not None
    assert torch.equal(computed.eager, computed.exact.float()), "eager rounds nothing by luck"
    moved = computed.eager.clone()
    moved[0] *= 1 + units * torch.finfo(torch.bfloat16).eps
    assert (judged(moved, computed, "default", "") is None) is right


def accesses(first: tuple[str, ...], second: tuple[str, ...]) -> dict[str, str]:
    """Return the nodes that are known if two kernels write these variables."""

    class Two(Kernels):
        def access(self, statement: Statement) -> Access | None:
            return Access((), first if "one" in statement.text else second)

    body = ast.parse("def call(args):\n    one(buf0)\n    two(buf0)\n    return ()").body[0]
    assert isinstance(body, ast.FunctionDef)
    nodes = {"buf0": "scatter", "buf2": "relu"}
    return written_at_once(nodes, {"buf0"}, Two(), instrument(body))


def test_a_scatter_in_two_kernels_does_not_hold_its_value_after_the_first() -> None:
    assert accesses(("buf0",), ("buf2",))["buf0"] == "scatter"
    assert "buf0" not in accesses(("buf0",), ("buf0", "buf2"))
    assert accesses(("buf2",), ("buf2",))["buf2"] == "relu"


def shared_maximum(x: Tensor, maximum: Tensor) -> Tensor:
    equal = (x * 3).to(torch.bfloat16) == maximum
    return x / equal.sum()


def test_a_division_by_the_number_of_equal_values_is_not_judged_where_rounding_decides() -> None:
    x = torch.linspace(0.1, 1, 64)
    maximum = torch.tensor(3.0, dtype=torch.bfloat16)
    module = make_fx(shared_maximum, tracing_mode="fake")(x, maximum)
    known = {"x_1": x, "maximum_1": maximum - 2**-6}
    computed = ReferenceGraph(module).compute("div", known)
    assert computed.jumps
    with pytest.raises(Unjudged, match="rounded values"):
        judged(x, computed, "default", "")
    wrong = torch.full_like(x, torch.nan)
    finite = ReferenceGraph(module).compute("div", {**known, "maximum_1": maximum})
    assert judged(wrong, finite, "default", "") is not None
    assert judged(x, finite, "default", "") is None
