"""One invalid graph for each rule of the verifier."""

from __future__ import annotations

import operator
from dataclasses import replace

import pytest
import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, Symbol, to_index
from tcdebug.compiler.ir.build import call, constant
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, IndexValue, Indirect, Load, Parameter
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Input,
    Node,
    Origin,
    Pointwise,
    Reduction,
    Ref,
    Scatter,
)
from tcdebug.compiler.ir.verifier import InvalidGraph, verify

FOUR = to_index(4)
ONE = to_index(1)
I0 = Axis("i0", FOUR)
R0 = Axis("r0", FOUR)
ORIGIN = Origin("node", "aten.add.Tensor")
X = Buffer("x", torch.float32, (FOUR,), (ONE,))
N = Buffer("n", torch.int64, (FOUR,), (ONE,))
INPUTS = (Input("x", buffer=X), Input("n", buffer=N))
LOAD = Load(torch.float32, "x", (to_index(I0),))
UNKNOWN = to_index(Symbol("u0"))


def pointwise(body: Expr = LOAD, **changes: object) -> Pointwise:
    out = Buffer("out", torch.float32, (FOUR,), (ONE,))
    node = Pointwise(out, (I0,), (to_index(I0),), body, ORIGIN)
    return replace(node, **changes)


def total(**changes: object) -> Reduction:
    out = Buffer("out", torch.float32, (), ())
    body = Load(torch.float32, "x", (to_index(R0),))
    return replace(Reduction(out, (), (R0,), (), "sum", body, ORIGIN), **changes)


def extern(*args: object, **flags: object) -> Extern:
    return Extern("called", operator.neg, args, {}, None, ORIGIN, **flags)


def graph(*nodes: Node, outputs: tuple[object, ...] = (Ref("out"),)) -> Graph:
    return Graph(INPUTS, nodes, outputs)


def problem(broken: Graph) -> str:
    """The one problem that the verifier finds."""
    with pytest.raises(InvalidGraph) as found:
        verify(broken)
    assert len(found.value.problems) == 1, found.value.problems
    return found.value.problems[0]


def test_valid_graphs_pass() -> None:
    verify(graph(pointwise()))
    verify(graph(total()))
    verify(graph(pointwise(), extern(Ref("out"), mutates=("x",))))


def test_two_inputs_with_the_same_name() -> None:
    assert problem(Graph((*INPUTS, Input("x")), (), ())) == "x is defined twice"


def test_a_node_with_the_name_of_an_input() -> None:
    node = pointwise(out=replace(X, name="n"))
    assert problem(graph(node, outputs=())) == "n is defined twice"


def test_an_output_that_is_not_defined() -> None:
    assert problem(graph(outputs=(Ref("y"),))) == "output y is not defined"


def test_an_output_with_an_unknown_size() -> None:
    assert problem(graph(outputs=(UNKNOWN,))) == "output u0 mentions unknown sizes"


def test_an_extern_call_that_uses_a_later_value() -> None:
    broken = graph(extern(Ref("out")), pointwise())
    assert problem(broken) == "called uses out before it is defined"


def test_an_extern_call_that_writes_to_an_undefined_value() -> None:
    assert problem(graph(extern(mutates=("y",)), outputs=())) == (
        "called uses y before it is defined"
    )


def test_an_axis_that_occurs_twice() -> None:
    out = Buffer("out", torch.float32, (FOUR,), (ONE,))
    broken = total(axes=(R0,), out=out, index=(to_index(R0),))
    assert problem(graph(broken)) == "out names an axis twice"


def test_an_axis_that_is_not_looped_over() -> None:
    body = Load(torch.float32, "x", (to_index(R0),))
    assert "uses axes that it does not loop over" in problem(graph(pointwise(body)))


def test_an_axis_with_the_same_name_and_another_size() -> None:
    body = Load(torch.float32, "x", (to_index(Axis("i0", to_index(5))),))
    assert problem(graph(pointwise(body))) == "out uses i0 of size 5, not 4"


def test_a_size_that_is_not_known_yet() -> None:
    body = Call(torch.float32, "cast", (IndexValue(torch.int64, UNKNOWN),))
    assert "mentions unknown sizes" in problem(graph(pointwise(body)))


def test_a_dtype_that_kernels_do_not_write() -> None:
    body = Call(torch.complex64, "cast", (LOAD,))
    out = Buffer("out", torch.complex64, (FOUR,), (ONE,))
    assert "which kernels do not write" in problem(graph(pointwise(body, out=out)))


def test_an_index_and_a_size_of_different_length() -> None:
    assert "differ in length" in problem(graph(pointwise(index=())))


def test_loops_that_do_not_fill_the_buffer() -> None:
    out = Buffer("out", torch.float32, (to_index(5),), (ONE,))
    assert "but fills" in problem(graph(pointwise(out=out)))


def test_a_value_stored_as_another_dtype() -> None:
    body = Load(torch.int64, "n", (to_index(I0),))
    assert problem(graph(pointwise(body))) == "out stores torch.int64 as torch.float32"


def test_a_reduction_over_no_axes() -> None:
    broken = total(reduced=(), body=Load(torch.float32, "x", (to_index(0),)))
    assert problem(graph(broken)) == "out reduces over nothing"


def test_an_unknown_reduction() -> None:
    assert problem(graph(total(kind="median"))) == "out: no reduction is called median"


def test_a_position_that_is_not_int64() -> None:
    assert problem(graph(total(kind="argmax"))) == "out reduces torch.float32 to torch.float32"


def test_an_index_of_a_float_dtype() -> None:
    place = to_index(Indirect(LOAD, FOUR, checked=True))
    body = Load(torch.float32, "x", (place,))
    assert "indexes with torch.float32" in problem(graph(pointwise(body)))


def test_a_load_of_an_undefined_buffer() -> None:
    body = Load(torch.float32, "y", (to_index(I0),))
    assert problem(graph(pointwise(body))) == "out loads y, which is not defined"


def test_a_load_of_a_buffer_that_is_filled_later() -> None:
    early = pointwise(Load(torch.float32, "later", (to_index(I0),)))
    later = pointwise(out=Buffer("later", torch.float32, (FOUR,), (ONE,)))
    assert problem(graph(early, later)) == "out loads later, which is not defined"


def test_a_load_with_too_few_indices() -> None:
    assert "loads x as" in problem(graph(pointwise(Load(torch.float32, "x", ()))))


def test_a_load_as_another_dtype() -> None:
    body = Call(torch.float32, "cast", (Load(torch.int32, "x", (to_index(I0),)),))
    assert "loads x as torch.int32" in problem(graph(pointwise(body)))


def test_a_parameter_that_is_not_defined() -> None:
    body = Parameter(torch.float32, "scale")
    assert problem(graph(pointwise(body))) == "out uses scale, which is not defined"


def test_an_index_value_that_is_not_int64() -> None:
    body = IndexValue(torch.float32, to_index(I0))
    assert "an index is int64" in problem(graph(pointwise(body)))


def test_a_guard_whose_condition_is_not_bool() -> None:
    assert "a guard of" in problem(graph(pointwise(Guarded(torch.float32, LOAD, LOAD, LOAD))))


def test_an_operation_on_mixed_dtypes() -> None:
    number = Load(torch.int64, "n", (to_index(I0),))
    body = Call(torch.float32, "add", (LOAD, number))
    assert "takes operands of one dtype" in problem(graph(pointwise(body)))


def test_an_operation_on_a_dtype_that_it_does_not_take() -> None:
    number = Load(torch.int64, "n", (to_index(I0),))
    body = Call(torch.float32, "cast", (Call(torch.int64, "exp", (number,)),))
    assert "exp does not take torch.int64" in problem(graph(pointwise(body)))


def test_an_operation_with_too_many_operands() -> None:
    body = Call(torch.float32, "neg", (LOAD, LOAD))
    assert "neg does not take 2 operands" in problem(graph(pointwise(body)))


def test_an_operation_with_the_wrong_result_dtype() -> None:
    compared = Call(torch.float32, "lt", (LOAD, LOAD))
    assert problem(graph(pointwise(compared))) == ("out: lt makes torch.bool, not torch.float32")


def test_the_message_contains_every_problem() -> None:
    broken = graph(pointwise(call("neg", LOAD)), outputs=(Ref("y"), Ref("z")))
    with pytest.raises(InvalidGraph, match=r"output y is not defined\n  output z is not defined"):
        verify(broken)


def test_a_store_into_memory_with_another_layout() -> None:
    found = problem(graph(pointwise(into="n")))
    assert found == "out stores into n, which has another dtype or layout"


def test_a_store_over_an_element_that_is_read_later() -> None:
    turned = Load(torch.float32, "x", (3 - to_index(I0),))
    found = problem(graph(pointwise(turned, into="x")))
    assert found == "out reads x[i0*-1 + 3], which it may have overwritten"


def test_a_scatter_into_an_undefined_buffer() -> None:
    place = to_index(Indirect(Load(torch.int64, "n", (to_index(I0),)), FOUR, checked=True))
    out = Buffer("out", torch.float32, (FOUR,), (ONE,))
    seven = constant(torch.float32, 7.0)
    verify(graph(Scatter(out, (I0,), (place,), seven, ORIGIN, "x"), outputs=()))
    late = replace(pointwise(), out=replace(out, name="late"))
    scatter = Scatter(out, (I0,), (place,), seven, ORIGIN, "late")
    assert problem(graph(scatter, late)) == "out stores into late before it is defined"
