"""The printed text of a graph parses to an equal graph."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import AXES, SYMBOL
from programs import PROGRAMS, Program
from property_settings import property_settings
from stages import capture

from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.arithmetic.order import extremum
from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, Indirect, Load
from tcdebug.compiler.ir.graph import Buffer, Extern, Graph, Input, Origin, Pointwise, Ref
from tcdebug.compiler.ir.parse import _namespace, _Reader, parse_graph
from tcdebug.compiler.ir.printer import CONSTRUCTORS, print_expr, print_graph

ORIGIN = Origin("node", "aten.add.Tensor")


def assert_reads_back(graph: Graph) -> None:
    """Parse the text of a graph; the result must be equal and have an equal text."""
    text = print_graph(graph)
    again = parse_graph(text, graph.constants)
    assert print_graph(again) == text
    assert again.inputs == graph.inputs
    assert again.outputs == graph.outputs
    assert len(again.nodes) == len(graph.nodes)
    for mine, theirs in zip(again.nodes, graph.nodes, strict=True):
        assert type(mine) is type(theirs)
        assert mine.out == theirs.out
        assert mine.origin == theirs.origin
        if not isinstance(mine, Extern):
            assert mine.axes == theirs.axes
            assert mine.index == theirs.index
            assert mine.body.key == theirs.body.key
        else:
            assert mine.target is theirs.target
            assert mine.alias_of == theirs.alias_of
            assert mine.mutates == theirs.mutates
            assert mine.binds == theirs.binds


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS[::2], ids=lambda p: p.name)
def test_a_lowered_and_an_inlined_graph_are_parsed_back(program: Program) -> None:
    captured = capture(program.function, *program.inputs())
    for graph in (*captured.lowered, *captured.inlined):
        assert_reads_back(graph)


def test_a_graph_with_symbolic_sizes_is_parsed_back() -> None:
    captured = capture(
        lambda x: torch.softmax(x.reshape(-1), 0)[::2] + x.size(0),
        torch.randn(6, 4),
        dynamic=True,
    )
    (graph,) = captured.lowered
    assert "symbol(" in print_graph(graph)
    assert_reads_back(graph)


def test_a_graph_with_a_constant_tensor_is_parsed_back() -> None:
    captured = capture(lambda x: x + torch.tensor([1.0, 2.0]), torch.ones(2))
    for graph in captured.lowered:
        assert_reads_back(graph)


def test_the_example_in_the_documentation_matches_the_output() -> None:
    (graph,) = capture(lambda x, b: x + b, torch.ones(2, 3), torch.ones(3)).lowered
    text = print_graph(graph).split("\n\n")
    assert text[0] == (
        "input_buffer('arg0_1', float32, size=[2, 3], stride=[3, 1])\n"
        "input_buffer('arg1_1', float32, size=[3], stride=[1])"
    )
    assert text[1].split("\n")[1:] == [
        "def add_(i0, i1):",
        "    t0 = load(float32, 'arg0_1', i0, i1)",
        "    t1 = load(float32, 'arg1_1', i1)",
        "    return add(t0, t1)",
    ]
    assert text[2] == "output(ref('add'))\n"


def test_stores_into_inputs_and_scatters_are_parsed_back() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.index_put((i,), x[:2].sin(), accumulate=True)

    (graph,) = capture(function, torch.ones(5, 3), torch.tensor([1, 1])).lowered
    assert "@scatter(" in print_graph(graph)
    assert "into='arg0_1'" in print_graph(graph)
    assert_reads_back(graph)


def test_every_name_that_a_text_may_use_can_be_parsed() -> None:
    assert set(_namespace(_Reader({}))) == CONSTRUCTORS


def test_a_shared_expression_is_printed_once() -> None:
    load = Load(torch.float32, "x", (to_index(AXES["i0"]),))
    square = call("mul", load, load)
    assert print_expr(call("add", square, square)) == (
        "    t0 = load(float32, 'x', i0)\n    t1 = mul(t0, t0)\n    return add(t1, t1)"
    )


# -- random expressions -------------------------------------------------------------------------

I0, I1 = to_index(AXES["i0"]), to_index(AXES["i1"])
S0 = to_index(SYMBOL)
PLACES = st.sampled_from(
    [I0, I1 * 2 - 1, I0 // S0, (I0 + I1) % 5, S0 - I1, extremum("max", S0, I1)]
)


@st.composite
def leaves(draw: st.DrawFn) -> Expr:
    """A load, a constant, an index as data, or a load at an indirect index."""
    index = draw(PLACES)
    match draw(st.sampled_from(["load", "constant", "index", "indirect"])):
        case "constant":
            return constant(torch.float32, draw(st.floats(width=32)))
        case "index":
            return cast(index_value(index), torch.float32)
        case "indirect":
            place = Load(torch.int64, "n", (index,))
            where = to_index(Indirect(place, S0, checked=draw(st.booleans())))
            return Load(torch.float32, "x", (where + index, index))
    return Load(torch.float32, "x", (index, I1))


def calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Operations on smaller expressions."""
    unary = st.sampled_from(["neg", "exp", "sqrt", "floor", "sign"])
    binary = st.sampled_from(["add", "div", "maximum", "pow", "remainder"])
    middle = st.sampled_from([torch.bfloat16, torch.float64, torch.int32, torch.bool])
    return st.one_of(
        st.builds(call, unary, inner),
        st.builds(call, binary, inner, inner),
        st.builds(lambda a, b: call("where", call("lt", a, b), a, b), inner, inner),
        st.builds(lambda a, b: Guarded(a.dtype, call("isnan", a), a, b), inner, inner),
        st.builds(lambda a, d: cast(cast(a, d), torch.float32), inner, middle),
    )


@given(st.recursive(leaves(), calls, max_leaves=6))
@property_settings(80)
def test_any_expression_is_parsed_back(body: Expr) -> None:
    axes = tuple(AXES.values())
    assert all(isinstance(a, Axis) for a in axes)
    size = tuple(a.size for a in axes)
    stride = tuple(to_index(k + 1) for k in range(len(size)))
    x = Buffer("x", torch.float32, (to_index(SYMBOL), to_index(9)), (to_index(9), to_index(1)))
    n = Buffer("n", torch.int64, (to_index(99),), (to_index(1),))
    out = Buffer("out", compute_dtype(body.dtype), size, stride)
    node = Pointwise(out, axes, tuple(map(to_index, axes)), body, ORIGIN)
    graph = Graph(
        (Input("s", symbol=SYMBOL), Input("x", buffer=x), Input("n", buffer=n)),
        (node,),
        (Ref("out"),),
    )
    assert_reads_back(graph)
