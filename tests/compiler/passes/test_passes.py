"""Each pass: the number and kind of nodes before and after, and unchanged values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, aten_graph, ops
from judge import assert_same
from programs import PROGRAMS, Program
from stages import compile_with

from tcdebug.compiler.effects import is_pure, may_share_memory
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.passes import PASSES
from tcdebug.compiler.passes.algebraic import algebraic
from tcdebug.compiler.passes.common_subexpressions import common_subexpressions
from tcdebug.compiler.passes.dead_code import dead_code
from tcdebug.compiler.passes.noop_elimination import noop_elimination
from tcdebug.compiler.passes.redundant_views import redundant_views
from tcdebug.compiler.passes.replacement import same_tensor
from tcdebug.compiler.pipeline import ATEN

aten = torch.ops.aten
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
INTEGER = torch.arange(12).reshape(3, 4)
NAN, INF = float("nan"), float("inf")


def after(
    change: Callable[..., bool], function: Callable[..., Any], *inputs: torch.Tensor
) -> dict[str, int]:
    """The remaining operators."""
    changed, module = applied(change, aten_graph(function, *inputs))
    assert_same(module(*inputs), function(*inputs))
    assert changed == (ops(module) != ops(aten_graph(function, *inputs)))
    return ops(module)


# -- algebraic ----------------------------------------------------------------------------------

NEUTRAL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "times_one": lambda x: aten.mul.Tensor(x, 1),
    "minus_zero": lambda x: aten.sub.Tensor(x, 0),
    "over_one": lambda x: aten.div.Tensor(x, 1),
    "power_one": lambda x: aten.pow.Tensor_Scalar(x, 1),
    "minus_minus": lambda x: aten.neg.default(aten.neg.default(x)),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_arithmetic_that_changes_nothing_is_removed(name: str) -> None:
    left = after(algebraic, lambda x: aten.sin.default(NEUTRAL[name](x)), X)
    assert {op: n for op, n in left.items() if op != "neg.default"} == {"sin.default": 1}


@pytest.mark.parametrize("name", NEUTRAL)
def test_removed_arithmetic_changes_no_bit_of_special_values(name: str) -> None:
    special = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-45, 3e38])
    assert_same(NEUTRAL[name](special), special, exact=True)


KEPT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "x * 0 is NaN for NaN": lambda x: aten.mul.Tensor(x, 0),
    "x + 0 is 0.0 for -0.0": lambda x: aten.add.Tensor(x, 0),
    "x - x is NaN for inf": lambda x: aten.sub.Tensor(x, x),
    "x / x is NaN for 0": lambda x: aten.div.Tensor(x, x),
    "x ** 0": lambda x: aten.pow.Tensor_Scalar(x, 0),
    "times two": lambda x: aten.mul.Tensor(x, 2),
    "minus one": lambda x: aten.sub.Tensor(x, 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_arithmetic_that_may_change_a_value_stays(name: str) -> None:
    changed, module = applied(algebraic, aten_graph(lambda x: KEPT[name](x).sin(), X))
    assert not changed
    assert sum(ops(module).values()) == 2


def test_an_integer_divided_by_one_is_a_float_and_stays() -> None:
    left = after(algebraic, lambda x: aten.sin.default(aten.div.Tensor(x, 1)), INTEGER)
    assert left == {"div.Tensor": 1, "sin.default": 1}


def test_a_neutral_operand_that_promotes_the_dtype_stays() -> None:
    left = after(algebraic, lambda x: aten.sum.default(aten.mul.Tensor(x, 1.0)), INTEGER)
    assert left == {"mul.Tensor": 1, "sum.default": 1}


def test_true_does_not_count_as_one() -> None:
    left = after(algebraic, lambda x: aten.sin.default(aten.mul.Tensor(x, True)), X)
    assert left["mul.Tensor"] == 1


def test_bitwise_or_with_zero_is_removed() -> None:
    function = lambda x: aten.sum.default(aten.bitwise_or.Scalar(x, 0))  # noqa: E731 # shortest
    assert after(algebraic, function, INTEGER) == {"sum.default": 1}


def test_a_returned_tensor_shares_no_memory_with_another() -> None:
    changed, module = applied(algebraic, aten_graph(lambda x: aten.mul.Tensor(x, 1), X))
    assert not changed
    assert ops(module) == {"mul.Tensor": 1}


# -- common subexpressions ----------------------------------------------------------------------


def test_equal_calls_are_merged() -> None:
    left = after(common_subexpressions, lambda x: x.sin() * 2 + x.sin() * 2, X)
    assert left == {"sin.default": 1, "mul.Tensor": 1, "add.Tensor": 1}


def test_numbers_of_different_types_are_not_equal() -> None:
    left = after(common_subexpressions, lambda x: (x * 1).sum() + (x * 1.0).sum(), INTEGER)
    assert left["mul.Tensor"] == 2


def test_zeros_of_different_sign_are_not_equal() -> None:
    left = after(common_subexpressions, lambda x: (x * 0.0).sum() / (x * -0.0).sum(), X)
    assert left["mul.Tensor"] == 2


def test_draws_of_random_numbers_are_not_merged() -> None:
    function = lambda x: aten.bernoulli.default(x) + aten.bernoulli.default(x)  # noqa: E731 # shortest
    changed, module = applied(common_subexpressions, aten_graph(function, X.abs().clamp(0, 1)))
    assert not changed
    assert ops(module)["bernoulli.default"] == 2


def test_two_returned_tensors_are_not_merged() -> None:
    changed, module = applied(common_subexpressions, aten_graph(lambda x: (x + 1, x + 1), X))
    assert not changed
    first, second = module(X)
    assert first.data_ptr() != second.data_ptr()


# -- dead code ----------------------------------------------------------------------------------


def _with_dead(x: torch.Tensor) -> torch.Tensor:
    x.sin().cos()
    return x + 1


def test_unused_calls_are_removed() -> None:
    changed, module = applied(dead_code, aten_graph(_with_dead, X))
    assert changed
    assert ops(module) == {"add.Tensor": 1}


def test_an_unused_write_stays() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        x.copy_(y)
        return y

    changed, module = applied(dead_code, aten_graph(function, X))
    assert not changed
    assert ops(module) == {"add.Tensor": 1, "copy_.default": 1}


def test_an_assertion_without_a_result_is_kept() -> None:
    function = lambda x: (aten._assert_async.default(x.sum() > -1e9), x + 1)[1]  # noqa: E731 # shortest
    _, module = applied(dead_code, aten_graph(function, X))
    assert "_assert_async.default" in ops(module)


# -- no-ops and views ---------------------------------------------------------------------------

NOOPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clone": lambda x: aten.clone.default(x.sin()),
    "alias": lambda x: aten.alias.default(x),
    "same_size": lambda x: aten.view.default(x, [3, 4]),
    "expand_to_itself": lambda x: aten.expand.default(x, [3, 4]),
    "permute_in_order": lambda x: aten.permute.default(x, [0, 1]),
    "whole_slice": lambda x: aten.slice.Tensor(x, 0, 0, 3),
    "same_dtype": lambda x: torch.ops.prims.convert_element_type.default(x.sin(), torch.float32),
}


@pytest.mark.parametrize("name", NOOPS)
def test_a_copy_or_view_that_changes_nothing_is_removed(name: str) -> None:
    left = after(noop_elimination, lambda x: NOOPS[name](x).cos(), X)
    assert set(left) <= {"sin.default", "cos.default"}


NOT_NOOPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "turned": lambda x: aten.permute.default(x, [1, 0]),
    "part": lambda x: aten.slice.Tensor(x, 0, 1, 3),
    "other_size": lambda x: aten.view.default(x, [4, 3]),
    "other_dtype": lambda x: torch.ops.prims.convert_element_type.default(x, torch.float64),
    "copy_of_an_input": lambda x: aten.clone.default(x),
}


@pytest.mark.parametrize("name", NOT_NOOPS)
def test_a_copy_or_view_that_changes_something_stays(name: str) -> None:
    changed, _ = applied(noop_elimination, aten_graph(lambda x: NOT_NOOPS[name](x).cos(), X))
    assert not changed


def test_a_transposed_square_keeps_its_sizes_and_is_not_a_noop() -> None:
    ones = torch.eye(1).expand(3, 3)
    function = lambda x: aten.permute.default(x, [1, 0]) + 1  # noqa: E731 # shortest
    changed, _ = applied(noop_elimination, aten_graph(function, ones))
    assert not changed


def test_a_view_of_a_view_reads_the_first_tensor() -> None:
    function = lambda x: x.sin().view(12).view(2, 6).cos()  # noqa: E731 # shortest
    assert after(redundant_views, function, X) == {
        "sin.default": 1, "view.default": 1, "cos.default": 1,
    }  # fmt: skip


def test_two_permutations_become_their_composition() -> None:
    x = torch.randn(2, 3, 4)
    function = lambda t: t.sin().permute(2, 0, 1).permute(1, 2, 0)  # noqa: E731 # shortest
    changed, module = applied(redundant_views, aten_graph(function, x))
    assert changed
    assert [n.args[1] for n in module.graph.nodes if n.target is aten.permute.default] == [
        [0, 1, 2]
    ]
    assert_same(module(x), function(x))


def test_a_view_with_other_readers_stays() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        flat = x.sin().view(12)
        return flat.view(2, 6).cos().sum() + flat.sum()

    _, module = applied(redundant_views, aten_graph(function, X))
    assert ops(module)["view.default"] == 2
    assert_same(module(X), function(X))


# -- all passes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS[::7], ids=lambda p: p.name)
def test_passes_keep_values_and_report_whether_they_changed_the_graph(program: Program) -> None:
    inputs = program.inputs()
    module = aten_graph(program.function, *inputs)
    for change in PASSES:
        before = str(module.graph)
        changed, module = applied(change, module)
        assert changed == (str(module.graph) != before), change.__name__
    assert_same(module(*inputs), program.function(*inputs))


OF_SOME_MACHINES = {
    "passes.aligned_products",
    "passes.float32_products",
    "passes.unfused_bias",
}
"""Passes that act only on a GPU or on some processors, which have tests of their own."""


@pytest.mark.parametrize("unit", sorted(set(ATEN) - OF_SOME_MACHINES))
def test_a_pass_that_is_off_leaves_the_graph_alone(unit: str) -> None:
    def busy(x: torch.Tensor) -> torch.Tensor:
        x.exp()
        y = aten.clone.default(x.sin()).view(12).view(2, 6) * 1
        w = x[:1, :2].reshape(1, 1, 1, 2)
        y = y + torch.arange(6.0).exp()
        y = torch.cat([y.sin(), y.cos()])[:2].exp()
        z = torch.conv2d(torch.conv2d(x.view(1, 1, 3, 4), w), w)
        aten.copy_.default(x, aten.select_scatter.default(x, y[0, :4], 0, 1))
        return (y.cos() + y.cos()).sum() + z

    module = aten_graph(busy, X)
    assert applied(ATEN[unit], aten_graph(busy, X))[0], "the graph gives this pass nothing to do"
    before = str(module.graph)
    gate = Gate(Toggles.parse([unit]))
    stages = compile_with(gate).stages("inference")
    stages.run_passes("passes", module, {unit: ATEN[unit]})
    assert str(module.graph) == before
    assert [(d.unit, d.allowed) for d in gate.decisions] == [(unit, False)]


def test_purity_of_calls() -> None:
    module = aten_graph(lambda x: (x.sin(), aten.bernoulli.default(x), x.add_(1)), X.abs())
    pure = {str(n.target): is_pure(n) for n in module.graph.nodes}
    assert pure["aten.sin.default"]
    assert not pure["aten.bernoulli.default"]
    assert not pure["aten.add_.Tensor"]
    assert not pure["output"]


def test_tensors_with_different_strides_are_not_the_same() -> None:
    module = aten_graph(lambda x: (x.t().contiguous().t(), x + 0, x.double()), X)
    nodes = {str(n.target): n for n in module.graph.nodes}
    (source,) = [n for n in module.graph.nodes if n.op == "placeholder"]
    assert same_tensor(nodes["aten.add.Tensor"], source)
    assert not same_tensor(nodes["aten._to_copy.default"], source)
    assert not same_tensor(nodes["aten.t.default"], nodes["aten.clone.default"])


def test_views_share_memory_and_copies_and_numbers_do_not() -> None:
    def shared(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t(), aten._unsafe_view.default(x, [12]), aten.split.Tensor(x, 1)[0], x.clone()

    graph = aten_graph(shared, X).graph
    size = graph.call_function(operator.mul, (3, 4))
    size.meta["val"] = 12
    found = {getattr(n.target, "__name__", ""): n for n in graph.nodes if n.op == "call_function"}
    assert {name: may_share_memory(node) for name, node in found.items()} == {
        "t.default": True,
        "_unsafe_view.default": True,
        "split.Tensor": True,
        "getitem": True,
        "clone.default": False,
        "mul": False,
    }
