"""Reductions: any subset of their edits gives a graph that is valid and runs."""

from __future__ import annotations

import operator
from functools import cache

import pytest
import torch
import user_programs
from captured import captured, targets
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.minifier.cases.ambient import Ambient, restored
from tcdebug.minifier.cases.case import Case, clone_values
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.reduction import CaseReduction
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs, make, recipe_for
from tcdebug.minifier.reduction.details.static_shapes import StaticShapes
from tcdebug.minifier.reduction.operators.bypass_nodes import BypassNodes
from tcdebug.minifier.reduction.operators.cut_nodes import CutNodes
from tcdebug.minifier.reduction.operators.drop_outputs import DropOutputs
from tcdebug.minifier.reduction.operators.drop_regions import DropRegions
from tcdebug.minifier.reduction.operators.regions import regions
from tcdebug.minifier.reduction.operators.surgery import node_values, writes
from tcdebug.minifier.reduction.operators.truncate import Truncate
from tcdebug.minifier.reduction.reducer import REDUCTIONS

PROPERTY = property_settings(6)
PROGRAMS = user_programs.arguments()
BATCHED = {"_add_batch_dim", "_remove_batch_dim", "_vmap_increment_nesting"}
"""The operators that Dynamo emits for a vmap."""


@cache
def case_of(name: str) -> Case:
    function, args = PROGRAMS[name]
    return captured(function, *args, dynamic=name == "sized")


def check(case: Case) -> None:
    """Check that the graph is valid, and that the replayed text runs and leaves torch unchanged."""
    case.graph.lint()
    placeholders = [str(n.target) for n in case.graph.nodes if n.op == "placeholder"]
    assert placeholders == [i.name for i in case.inputs]
    if BATCHED & set(targets(case)):
        return  # a value inside a vmap means nothing outside it
    before = Ambient.current()
    with restored():
        load(case, "reduced.py")(*clone_values(case.values()))
        assert Ambient.current() == before


@pytest.mark.sampled
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_subset_of_edits_gives_a_case_that_runs(name: str, reduction: CaseReduction) -> None:
    torch._dynamo.reset()
    case = case_of(name)
    edits = reduction.edits(case)
    assert len(set(edits)) == len(edits)
    key = case.key

    @PROPERTY
    @given(st.data())
    def some(data: st.DataObject) -> None:
        if reduction.ordered:
            chosen = edits[: data.draw(st.integers(1, len(edits)))]
        else:
            chosen = data.draw(st.lists(st.sampled_from(edits), min_size=1, unique=True))
        reduced = reduction.apply(case, chosen)
        assert case.key == key, "edits are made on a copy"
        if reduced is not None:
            check(reduced)
            assert reduced.size <= case.size

    if edits:
        some()


def sizes(reduction: CaseReduction, case: Case) -> list[int]:
    """Return the number of nodes after the first edit, the first two, and so on."""
    edits = reduction.edits(case)
    made = [reduction.apply(case, edits[: n + 1]) for n in range(len(edits))]
    return [m.size if m is not None else -1 for m in made]


def test_truncation_drops_nodes_from_the_end() -> None:
    case = case_of("chain")
    assert targets(case) == ["add", "exp", "relu", "tanh", "mul", "sub", "sigmoid", "sum"]
    assert sizes(Truncate(), case) == [7, 6, 5, 4, 3, 2, 1]
    first = Truncate().apply(case, Truncate().edits(case)[:4])
    assert first is not None
    assert targets(first) == ["add", "exp", "relu", "tanh"]


def test_values_that_are_unread_after_a_truncation_are_returned() -> None:
    case = case_of("layers")
    reduced = Truncate().apply(case, Truncate().edits(case)[:3])
    assert reduced is not None
    assert [n.name for n in reduced.graph.output_node().all_input_nodes] == ["y_1"]


def test_nodes_become_inputs_with_their_values() -> None:
    case = case_of("chain")
    front = [n.name for n in case.calls[:3]]
    reduced = CutNodes().apply(case, front)
    assert reduced is not None
    assert targets(reduced) == ["tanh", "mul", "sub", "sigmoid", "sum"]
    (given_,) = reduced.inputs
    x = case.values()[0].detach()
    assert given_.name == f"{front[-1]}_value"
    assert torch.equal(given_.value, (x + 1).exp().relu())
    assert given_.value.requires_grad
    assert torch.equal(reduced.module(*reduced.values())[0], case.module(*case.values())[0])


def test_all_parts_of_a_cut_graph_are_returned() -> None:
    case = case_of("chain")
    middle = [n.name for n in case.calls[2:7]]
    reduced = CutNodes().apply(case, middle)
    assert reduced is not None
    assert targets(reduced) == ["add", "exp", "sum"]
    assert [n.name for n in reduced.graph.output_node().all_input_nodes] == ["exp", "sum_1"]
    assert len(reduced.inputs) == 2


def test_the_last_node_stays_and_the_farthest_is_cut_first() -> None:
    case = case_of("chain")
    assert CutNodes().edits(case) == [n.name for n in case.calls[:-1]]
    alone = CutNodes().apply(case, CutNodes().edits(case))
    assert alone is not None
    assert targets(alone) == ["sum"]


def test_a_value_that_is_written_later_is_taken_at_its_node() -> None:
    """y ends up 1 larger than when it was cloned."""
    case = case_of("in_place")
    clone = case.calls[0].name
    assert torch.equal(node_values(case)[clone], case.values()[0])


def test_a_tuple_that_is_cut_becomes_an_input_for_each_element_that_is_read() -> None:
    case = case_of("outputs")
    chunk = next(n.name for n in case.calls if n.target == "chunk")
    reduced = CutNodes().apply(case, [chunk])
    assert reduced is not None
    assert targets(reduced) == ["mul", "sin", "cos", "tanh", "add", "sum"]
    assert [i.name for i in reduced.inputs] == ["L_x_", f"{chunk}_value_0", f"{chunk}_value_1"]
    assert torch.equal(reduced.values()[2], case.values()[0][2:] * 2)


def test_a_number_that_is_cut_becomes_a_literal() -> None:
    case = case_of("sized")
    size = next(n.name for n in case.calls if n.target == "size")
    reduced = CutNodes().apply(case, [size])
    assert reduced is not None
    (product,) = [n for n in reduced.calls if n.target is operator.mul]
    assert product.args[1] == 3
    assert [i.name for i in reduced.inputs] == ["L_x_"]


def test_a_node_is_bypassed_by_an_operand_of_its_shape_and_dtype() -> None:
    case = case_of("layers")
    edits = BypassNodes().edits(case)
    bypassable = [n for n in case.calls if n.name in edits]
    assert [n.target.__name__ if callable(n.target) else n.target for n in bypassable] == [
        "linear", "layer_norm", "tanh", "matmul", "softmax", "add",
    ]  # fmt: skip
    reduced = BypassNodes().apply(case, edits[:3])
    assert reduced is not None
    assert targets(reduced) == ["matmul", "softmax", "add"]


def test_a_node_that_changes_shape_or_dtype_cannot_be_bypassed() -> None:
    edits = BypassNodes().edits(case_of("mixed"))
    nodes = {n.name: n for n in case_of("mixed").calls}
    assert {str(nodes[e].target) for e in edits} & {"to", "float", "sum"} == set()


def test_outputs_are_dropped_with_what_only_they_need() -> None:
    case = case_of("outputs")
    edits = DropOutputs().edits(case)
    assert len(edits) == 3
    only_cosine = DropOutputs().apply(case, [edits[0], edits[2]])
    assert only_cosine is not None
    assert targets(only_cosine) == ["mul", "chunk", "getitem", "cos", "tanh"]
    assert DropOutputs().apply(case, edits) is None
    assert DropOutputs().edits(case_of("chain")) == []


def test_gradients_are_dropped_from_inputs() -> None:
    case = case_of("layers")
    edits = DropGradients().edits(case)
    reduced = DropGradients().apply(case, edits[:1])
    assert reduced is not None
    assert len(edits) == 2
    wanted = [i.name for i in reduced.inputs if i.value.requires_grad]
    assert wanted == edits[1:]
    assert all(i.value.requires_grad for i in case.inputs if i.name in edits)


def test_symbolic_sizes_become_static() -> None:
    case = case_of("sized")
    assert len(StaticShapes().edits(case)) == 1
    reduced = StaticShapes().apply(case, StaticShapes().edits(case))
    assert reduced is not None
    assert [i.dynamic for i in case.inputs] == [(0, 1)]
    assert [i.dynamic for i in reduced.inputs] == [()]
    assert StaticShapes().edits(reduced) == []


# -- inputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(2, 3),
        torch.randn(3, 2).t(),
        torch.randn(8)[1::3],
        torch.randn(3).to(torch.bfloat16).requires_grad_(),
        torch.nn.Parameter(torch.randn(3)),
        torch.tensor([3, 9, 4]),
        torch.tensor([True, False]),
        torch.tensor(7, dtype=torch.uint8),
        torch.zeros(0, 3, dtype=torch.int64),
        torch.empty(0, 3),
        torch.ones(1).expand(4),
    ],
)
def test_a_recipe_makes_a_tensor_like_the_recorded_one(value: torch.Tensor) -> None:
    recipe = recipe_for(value, 5)
    assert recipe is not None
    made, again = make(recipe, value), make(recipe, value)
    assert torch.equal(made, again)
    assert (made.dtype, made.shape) == (value.dtype, value.shape)
    assert made.requires_grad == value.requires_grad
    assert type(made) is type(value)
    if 0 not in value.stride():
        assert made.stride() == value.stride()
    if not value.is_floating_point() and value.numel():
        assert int(made.min()) >= int(value.min())
        assert int(made.max()) <= int(value.max())


def test_a_tensor_that_is_not_strided_has_no_recipe() -> None:
    assert recipe_for(torch.ones(2).to_sparse(), 0) is None


def test_indices_stay_in_their_range() -> None:
    case = case_of("mixed")
    reduced = SimplifyInputs().apply(case, SimplifyInputs().edits(case))
    assert reduced is not None
    assert all(i.recipe is not None for i in reduced.inputs)
    assert SimplifyInputs().edits(reduced) == []
    index = next(i for i in reduced.inputs if i.value.dtype == torch.int64)
    assert index.recipe is not None
    assert (index.recipe.low, index.recipe.high) == (1, 5)


def test_a_region_stays_whole_until_it_is_dropped() -> None:
    case = case_of("stateful")
    assert targets(case) == [
        "_set_grad_enabled", "mul", "_set_grad_enabled", "_enter_autocast", "matmul", "float",
        "_exit_autocast", "add", "tanh", "mul",
    ]  # fmt: skip
    inside = Truncate().apply(case, Truncate().edits(case)[:4])
    assert inside is not None
    assert targets(inside) == [
        "_set_grad_enabled", "mul", "_set_grad_enabled",
        "_enter_autocast", "matmul", "_exit_autocast",
    ]  # fmt: skip
    edits = DropRegions().edits(inside)
    assert len(edits) == 2
    one = DropRegions().apply(inside, edits[1:])
    both = DropRegions().apply(inside, edits)
    assert one is not None
    assert both is not None
    assert targets(one) == ["_set_grad_enabled", "mul", "_set_grad_enabled", "matmul"]
    assert targets(both) == ["mul", "matmul"]


def test_a_region_is_removed_with_its_contents() -> None:
    case = case_of("stateful")
    computing = [n.name for n in case.calls if "_" not in targets(case)[case.calls.index(n)]]
    first = CutNodes().apply(case, computing[:1])
    assert first is not None
    assert targets(first)[:2] == ["_enter_autocast", "matmul"]
    tanh = CutNodes().apply(case, computing[:4])
    assert tanh is not None
    assert targets(tanh) == ["tanh", "mul"]


def test_nested_regions_are_paired_from_the_inside() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            with torch.autocast("cpu", enabled=False):
                y = y.float() @ x
            return y @ x

    case = captured(function, torch.ones(2, 2))
    assert [(a.name, b.name) for a, b in regions(case.graph)] == [
        ("_enter_autocast_1", "_exit_autocast"),
        ("_enter_autocast", "_exit_autocast_1"),
    ]


# -- what writes ----------------------------------------------------------------------------


def test_which_calls_write_their_arguments() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone().mul_(2)
        y += 1
        torch.relu_(y)
        torch.sin(x, out=y)
        y[0] = 3.0
        torch.nn.functional.relu(y, inplace=True)
        return torch.add(y, 1).abs().neg()

    case = captured(function, torch.ones(3))
    found = {t: writes(n) for t, n in zip(targets(case), case.calls, strict=True)}
    assert found == {
        "clone": False, "mul_": True, "iadd": True, "relu_": True, "sin": True, "setitem": True,
        "relu": True, "add": False, "abs": False, "neg": False,
    }  # fmt: skip
