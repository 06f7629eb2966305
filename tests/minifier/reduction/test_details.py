"""Reductions of the details: arguments, operators, layouts, dtypes, sizes and values of inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import user_programs
from captured import captured, targets
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import Relation, lineage
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.reduction import CaseReduction
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.details.lift_constants import LiftConstants
from tcdebug.minifier.reduction.details.shrink_dimensions import ShrinkDimensions
from tcdebug.minifier.reduction.details.shrink_shapes import ShrinkShapes
from tcdebug.minifier.reduction.details.simplify_arguments import SimplifyArguments
from tcdebug.minifier.reduction.details.simplify_dtypes import SimplifyDtypes
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.reduction.details.simplify_ops import SimplifyOps
from tcdebug.minifier.reduction.details.simplify_strides import SimplifyStrides
from tcdebug.minifier.reduction.measure import measure
from tcdebug.minifier.reduction.operators.inline_subgraphs import InlineSubgraphs
from tcdebug.minifier.reduction.reducer import DETAILS, REDUCTIONS, Reducer
from tcdebug.minifier.repros.inputs_text import input_text
from tcdebug.minifier.repros.repro import Repro, write

PROGRAMS = user_programs.arguments()


def edited(reduction: CaseReduction, case: Case) -> Case:
    """Return the case with all edits applied."""
    reduced = reduction.apply(case, reduction.edits(case))
    assert reduced is not None
    reduced.graph.lint()
    return reduced


def text(case: Case) -> list[str]:
    """Return the lines of the graph that compute something, without the names of the results."""
    return [n.format_node().partition(" = ")[2].partition("(args")[2] for n in case.calls]


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(v.shape) for v in case.values()]


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_edit_of_a_detail_makes_the_measure_smaller(name: str) -> None:
    function, args = PROGRAMS[name]
    case = captured(function, *args, dynamic=name == "sized")
    for reduction in REDUCTIONS:
        edits = reduction.edits(case)
        for chosen in [edits[: k + 1] for k in range(len(edits))] if reduction.ordered else edits:
            reduced = reduction.apply(case, [chosen] if isinstance(chosen, str) else chosen)
            if reduced is not None and reduced.key != case.key:
                assert measure(reduced) < measure(case), (reduction, chosen)


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_with_every_detail_simplified_no_edits_are_listed(name: str) -> None:
    function, args = PROGRAMS[name]
    case = captured(function, *args, dynamic=name == "sized")
    calls = len(case.calls)

    def interesting(candidate: Case, purpose: str) -> bool:
        try:
            load(candidate, "candidate.py")(*candidate.values())
        except RuntimeError:
            return False
        return len(candidate.calls) == calls

    best = Reducer(case, EventLog(None)).run(interesting)
    assert len(best.calls) == calls
    assert [i.name for i in best.inputs if i.recipe is None and torch.is_tensor(i.value)] == []
    for reduction in DETAILS:
        if not isinstance(reduction, SimplifyOps | ShrinkShapes):
            left = reduction.edits(best)
            assert reduction.apply(best, left) is None or left == [], reduction


# -- layouts, dtypes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 2).t(),
        torch.randn(8)[1::3],
        torch.randn(8)[2:],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(torch.randn(3, 2).t()),
    ],
)
def test_a_strided_input_becomes_contiguous_with_the_same_values(value: torch.Tensor) -> None:
    case = captured(lambda x: x * 2, value)
    reduced = edited(SimplifyStrides(), case)
    (new,) = reduced.values()
    assert new.is_contiguous()
    assert new.untyped_storage().nbytes() == new.numel() * new.element_size()
    assert torch.equal(new, value)
    assert (type(new), new.requires_grad) == (type(value), value.requires_grad)
    assert SimplifyStrides().edits(reduced) == []


@pytest.mark.parametrize("value", [torch.randn(3, 2), torch.tensor(1.0), torch.empty(0, 3)])
def test_an_input_with_the_usual_layout_is_left_alone(value: torch.Tensor) -> None:
    assert SimplifyStrides().edits(captured(lambda x: x * 2, value)) == []


def test_dtypes_change_together_with_the_calls_that_name_them() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).to(torch.float64) + torch.zeros(3, dtype=torch.float16)

    case = captured(function, torch.ones(2, 3).bfloat16(), torch.ones(3, 3).bfloat16())
    reduced = edited(SimplifyDtypes(), case)
    assert [v.dtype for v in reduced.values()] == [torch.float32, torch.float32]
    assert text(reduced)[1:3] == [
        " = (%matmul, torch.float32), kwargs = {})",
        " = (3,), kwargs = {dtype: torch.float32})",
    ]


@pytest.mark.parametrize(
    ("dtype", "simple"),
    [
        (torch.float64, torch.float32),
        (torch.complex128, torch.complex64),
        (torch.complex64, torch.float32),
        (torch.float8_e4m3fn, torch.float32),
        (torch.uint8, torch.int64),
    ],
)
def test_a_dtype_becomes_the_next_simpler_one(dtype: torch.dtype, simple: torch.dtype) -> None:
    case = captured(lambda x: x.clone(), torch.ones(3).to(dtype))
    assert edited(SimplifyDtypes(), case).values()[0].dtype == simple


# -- sizes ----------------------------------------------------------------------------------


def test_sizes_that_must_be_equal_shrink_together() -> None:
    case = captured(lambda x, w: x @ w, torch.randn(5, 64), torch.randn(64, 7))
    assert ShrinkShapes().edits(case) == ["32", "16", "8", "4", "3", "2", "1"]
    assert shapes(edited(ShrinkShapes(), case)) == [(1, 1), (1, 1)]
    three = ShrinkShapes().apply(case, ["32", "16", "8", "4", "3"])
    assert three is not None
    assert shapes(three) == [(3, 3), (3, 3)]
    assert torch.equal(three.values()[0], case.values()[0][:3, :3])


def test_sizes_in_the_graph_follow_those_of_the_inputs() -> None:
    function, args = PROGRAMS["heads"]
    case = captured(function, *args)
    reduced = edited(ShrinkShapes(), case)
    assert shapes(reduced) == [(1, 1, 1), (2, 1)]
    split, view, *_ = (n for n in reduced.calls if n.target in ("split", "view"))
    assert split.args[1] == [1, 1]
    assert view.args[1:] == (1, 1, 1, 1)


def test_indices_stay_in_bounds() -> None:
    case = captured(
        lambda table, k: torch.nn.functional.embedding(k, table),
        torch.randn(50, 8),
        torch.tensor([3, 49, 20]),
    )
    four = ShrinkShapes().apply(case, ["32", "16", "8", "4"])
    assert four is not None
    by_shape = {tuple(v.shape): v for v in four.values()}
    assert by_shape[(3,)].tolist() == [3, 1, 0]
    assert four.module(*four.values())[0].shape == (3, 4)


def test_dimensions_that_are_coupled_become_one_together() -> None:
    case = captured(lambda x, w, b: x @ w + b, torch.ones(4, 4), torch.ones(4, 4), torch.ones(4))
    edits = ShrinkDimensions().edits(case)
    assert edits == ["L_x_.0", "L_x_.1 L_w_.0", "L_w_.1 L_b_.0"]
    rows = ShrinkDimensions().apply(case, edits[:1])
    assert rows is not None
    assert shapes(rows) == [(1, 4), (4, 4), (4,)]
    assert ShrinkDimensions().edits(edited(ShrinkDimensions(), case)) == []


def test_a_size_that_is_symbolic_stays_symbolic() -> None:
    case = captured(lambda x: x.tanh() * x.shape[0], torch.randn(9, 6), dynamic=True)
    reduced = edited(ShrinkShapes(), case)
    assert shapes(reduced) == [(2, 2)]
    assert reduced.inputs[0].dynamic == (0, 1)


def test_the_smallest_size_that_fails_remains() -> None:
    case = captured(lambda x, w: torch.relu(x @ w), torch.randn(40, 64), torch.randn(64, 50))

    def interesting(candidate: Case, purpose: str) -> bool:
        results = candidate.module(*candidate.values())
        return "relu" in targets(candidate) and results[0].shape[-1] >= 7

    best = Reducer(case, EventLog(None)).run(interesting)
    assert targets(best) == ["relu"]
    assert shapes(best) == [(1, 8)]


# -- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("ones", "torch.ones((2, 3))"),
        ("zeros", "torch.zeros((2, 3))"),
        ("arange", "torch.arange(6).view((2, 3)).to(torch.float32)"),
        ("noise", "torch.randn((2, 3), generator=torch.Generator().manual_seed(0))"),
    ],
)
def test_an_input_is_written_as_the_call_that_makes_it(kind: str, line: str) -> None:
    case = captured(lambda x: x * 2, torch.full((2, 3), 7.0))
    (spec,) = edited(SimplifyInputs(kind), case).inputs
    assert input_text(spec) == line
    assert torch.equal(eval(line), spec.value)


@pytest.mark.parametrize("kind", ["ones", "zeros", "arange", "noise"])
@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1 + 2j, 3]),
        torch.ones(2, 2).to(torch.float8_e4m3fn),
        torch.tensor([[4, 9], [7, 5]], dtype=torch.int16).t(),
        torch.tensor(True),
        torch.empty(0, 2),
    ],
)
def test_the_text_of_a_recipe_makes_the_same_tensor(
    kind: str, value: torch.Tensor, tmp_path: Path
) -> None:
    case = captured(lambda x: x.clone(), value)
    reduced = SimplifyInputs(kind).apply(case, SimplifyInputs(kind).edits(case))
    assert reduced is not None
    (spec,) = reduced.inputs
    if spec.recipe is None:
        assert kind == "ones", "4 to 9 are no ones"
        return
    write(reduced, Repro(Outcome(Kind.OK), {"backend": "eager"}), tmp_path / "repro.py")
    names: dict[str, Any] = {"__file__": str(tmp_path / "repro.py"), "__name__": "repro"}
    exec((tmp_path / "repro.py").read_text(), names)
    (made,) = names["inputs"]()
    assert (made.dtype, made.stride()) == (value.dtype, value.stride())
    assert torch.equal(made.to(torch.complex128), spec.value.to(torch.complex128))


def test_simple_values_are_not_made_less_simple() -> None:
    case = edited(SimplifyInputs("ones"), captured(lambda x: x * 2, torch.randn(3)))
    assert [SimplifyInputs(k).edits(case) for k in ("ones", "zeros", "arange", "noise")] == [
        [], [], [], [],
    ]  # fmt: skip


def test_tensors_of_the_module_become_inputs() -> None:
    module = torch.nn.Module()
    module.register_buffer("scale", torch.tensor([2.0, 3.0]))
    module.register_buffer("shift", torch.tensor([1.0, 2.0]))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    scale, shift = graph.get_attr("scale"), graph.get_attr("shift")
    scaled = graph.call_function(torch.mul, (x, scale))
    graph.output((graph.call_function(torch.add, (scaled, shift)),))
    case = Case(torch.fx.GraphModule(module, graph), (CaseInput("x", torch.ones(2)),))
    reduced = edited(LiftConstants(), case)
    assert [i.name for i in reduced.inputs] == ["x", "scale_value", "shift_value"]
    assert reduced.attributes() == {}
    assert reduced.module(*reduced.values())[0].tolist() == [3.0, 5.0]


# -- calls ----------------------------------------------------------------------------------


def test_arguments_go_back_to_their_defaults_and_numbers_to_one() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (4,), w, None, 1e-3)
        y = torch.add(y, x, alpha=3)
        return torch.softmax(y * 0.125, dim=-1, dtype=torch.float32) + 7

    case = captured(function, torch.randn(2, 4), torch.randn(4))
    assert text(edited(SimplifyArguments(), case)) == [
        " = (%l_x_, (4,)), kwargs = {})",
        " = (%y, %l_x_), kwargs = {})",
        " = (%y_1, 1.0), kwargs = {})",
        " = (%mul,), kwargs = {dim: -1})",
        " = (%softmax, 1), kwargs = {})",
    ]


def test_arguments_that_determine_the_result_stay() -> None:
    case = captured(lambda x: x.sum(2, keepdim=True).to(torch.int64), torch.ones(2, 3, 4))
    assert SimplifyArguments().edits(case) == []


def test_operators_become_the_simplest_of_their_shape_and_dtype() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.linear(x, w, b)
        y = torch.nn.functional.gelu(y)
        return torch.logsumexp(y * b, 1) > 0

    case = captured(function, torch.randn(2, 3), torch.randn(4, 3), torch.randn(4))
    assert targets(edited(SimplifyOps(0), case)) == [
        "linear", "neg", "neg", "logsumexp", "logical_not",
    ]  # fmt: skip
    assert targets(edited(SimplifyOps(1), case)) == ["linear", "gelu", "add", "logsumexp", "gt"]
    assert targets(edited(SimplifyOps(2), case)) == ["linear", "gelu", "mul", "sum", "gt"]


def test_the_simplest_operators_are_left_alone_however_they_are_called() -> None:
    case = captured(lambda x, w: (-x + x.neg()).sum(0) @ w, torch.randn(2, 3), torch.randn(3))
    assert [SimplifyOps(rung).edits(case) for rung in (1, 2)] == [[], []]


BODIES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "checkpoint": (
        lambda x: checkpoint(lambda y: (y * 2).sin(), x, use_reentrant=False).tanh(),
        ["mul", "sin", "tanh"],
    ),
    "cond": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), ["sin"]),
    "while_loop": (
        lambda x: torch.while_loop(
            lambda k, _: k < 1, lambda k, v: (k + 1, v.sin()), (torch.tensor(0), x)
        ),
        ["tensor", "add", "sin"],
    ),
    "scan": (
        lambda x: scan(lambda c, y: (c + y, c * y), torch.zeros(2), x.view(1, 2), dim=0),
        ["zeros", "view", "getitem", "add", "mul", "unsqueeze"],
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_inlined_into_the_graph(name: str) -> None:
    function, expected = BODIES[name]
    x = torch.tensor([1.0, 2.0])
    case = captured(function, x)
    reduced = edited(InlineSubgraphs(), case)
    assert targets(reduced) == expected
    assert reduced.size < case.size
    assert InlineSubgraphs().edits(reduced) == []
    for one, other in zip(reduced.module(x), case.module(x), strict=True):
        assert torch.equal(one, other)


def test_the_forward_of_an_autograd_function_is_inlined() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * 2

    case = captured(lambda x: Double.apply(x) + 1, torch.ones(2, requires_grad=True))
    reduced = edited(InlineSubgraphs(), case)
    assert [t for t in targets(reduced) if t != "_set_grad_enabled"] == ["mul", "add"]


# -- inputs that share memory ---------------------------------------------------------------


def related() -> Case:
    """A tensor, a part of it, and a third tensor that is separate."""
    whole = torch.rand(4, 6, dtype=torch.float64).requires_grad_()
    return captured(lambda a, b, c: a.sum() + b.sum() + c, whole, whole[1:], torch.rand(1))


@pytest.mark.parametrize(
    "reduction",
    [
        SimplifyInputs("noise"),
        SimplifyInputs("ones"),
        SimplifyInputs("arange"),
        SimplifyDtypes(),
        DropGradients(),
        ShrinkShapes(),
    ],
)
def test_an_edit_applies_to_all_inputs_that_share_memory(reduction: CaseReduction) -> None:
    case = related()
    edits = reduction.edits(case)
    assert case.inputs[1].name not in edits, "the first input names them all"
    reduced = reduction.apply(case, edits)
    assert reduced is not None
    before, after = (lineage(c.values()).members for c in (case, reduced))
    hows = [Relation.MEMORY, Relation.VIEW, Relation.MEMORY]
    assert [m.how for m in before] == [m.how for m in after] == hows
    whole, part, _ = reduced.values()
    assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    assert part.dtype == whole.dtype
    assert part.requires_grad == whole.requires_grad
    assert len({i.recipe for i in reduced.inputs[:2]}) == 1


def test_inputs_that_share_memory_are_separated_together() -> None:
    case = related()
    reduced = edited(SimplifyStrides(), case)
    assert [m.how for m in lineage(reduced.values()).members] == [Relation.MEMORY] * 3
    assert measure(reduced) < measure(case)
    assert [v.tolist() for v in reduced.values()] == [v.tolist() for v in case.values()]


def test_memory_of_two_dtypes_has_no_recipe() -> None:
    numbers = torch.rand(4, 6)
    case = captured(lambda a, b: a.sum() + b.sum(), numbers, numbers.view(torch.int32))
    for kind in ("ones", "zeros", "noise"):
        assert SimplifyInputs(kind).edits(case) == []
    assert SimplifyDtypes().edits(case) == []
    assert SimplifyStrides().edits(case) == [case.inputs[0].name]


def test_a_computed_input_becomes_a_leaf_when_its_layout_is_simplified() -> None:
    case = captured(lambda a: a.mul_(2).sum(), torch.ones(3, requires_grad=True) * 2)
    assert not case.values()[0].is_leaf
    assert edited(SimplifyInputs("ones"), case).values()[0].is_leaf is False
    assert edited(SimplifyStrides(), case).values()[0].is_leaf
