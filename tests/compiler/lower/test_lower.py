"""Lowering: operators that become loops or extern calls, and the source lines of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from externs import compiled_with_reasons
from graphs import aten_graph
from judge import assert_as_eager, compiled
from programs import f32, i64
from stages import capture

from tcdebug.compiler.gate.fingerprint import graph_id
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.graph import Extern, Graph, Pointwise, count_kinds
from tcdebug.compiler.ir.interpreter import reduce
from tcdebug.compiler.lower.stage import lower_graph
from tcdebug.compiler.lower.tables import LOWERINGS, VIEWS

aten = torch.ops.aten


def lowered(function: Callable[..., Any], *inputs: Any, **options: Any) -> Graph:
    (graph,) = capture(function, *inputs, **options).lowered
    return graph


def reasons(function: Callable[..., Any], *inputs: Any) -> dict[str, str]:
    """Operator -> the reason why it was left to ATen."""
    (module,) = capture(function, *inputs).aten
    return {op: reason for _, op, reason in lower_graph(module, Gate()).externs}


@pytest.mark.parametrize(
    ("function", "inputs", "kinds"),
    [
        (lambda x: x + 1, [f32(3)], {"pointwise": 1, "reduction": 0, "extern": 0}),
        (lambda x: x.sum(-1), [f32(3, 4)], {"pointwise": 0, "reduction": 1, "extern": 0}),
        (lambda x: x.mean(-1), [f32(3, 4)], {"pointwise": 1, "reduction": 1, "extern": 0}),
        (lambda x: x @ x, [f32(3, 3)], {"pointwise": 0, "reduction": 0, "extern": 1}),
        (lambda x: x.t() + 1, [f32(3, 4)], {"pointwise": 1, "reduction": 0, "extern": 0}),
        (lambda x: x.sum(1), [f32(3, 1)], {"pointwise": 1, "reduction": 0, "extern": 0}),
        (lambda x: x.max(1), [f32(3, 4)], {"pointwise": 0, "reduction": 2, "extern": 0}),
    ],
    ids=["pointwise", "sum", "mean", "matmul", "view", "sum_of_one", "max"],
)
def test_an_operator_becomes_the_expected_kind_of_node(
    function: Callable[..., Any], inputs: list[Any], kinds: dict[str, int]
) -> None:
    assert count_kinds(lowered(function, *inputs)) == {**kinds, "scan": 0, "scatter": 0}


def test_an_operator_that_is_left_to_aten_has_a_reason() -> None:
    assert reasons(lambda x: x @ x, f32(3, 3)) == {"aten.mm.default": "no lowering"}
    torch._dynamo.reset()
    complex_ = torch.ones(3, dtype=torch.complex64)
    assert reasons(lambda x: x + 1, complex_) == {"aten.add.Tensor": "dtype torch.complex64"}
    torch._dynamo.reset()
    mask = reasons(lambda x, y: torch.cat([x] * 9) + y, f32(2), f32(18))
    assert mask == {"aten.cat.default": "more than 8 tensors"}


VMAPPED: list[tuple[Callable[[Any], Any], torch.dtype]] = [
    (lambda v: v * 2.5, torch.int32),
    (lambda v: v // 0.3, torch.float32),
    (torch.func.grad(lambda v: (v * v * 2).sum()), torch.bfloat16),
]
NUMBERS = [
    (2.7, torch.int64, 2), (-2.7, torch.int32, -2), (300, torch.uint8, 44), (0.0, torch.bool, 0),
    (-0.0, torch.bool, 0), (0.1, torch.bfloat16, 0.10009765625), (1e5, torch.float16, math.inf),
]  # fmt: skip


def test_a_number_that_vmap_converts_becomes_a_constant() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        mapped = [torch.vmap(row)(x.to(dtype)) for row, dtype in VMAPPED]
        return [*mapped, *(aten._to_copy.default(n, dtype=dtype) for n, dtype, _ in NUMBERS)]

    x = torch.tensor([1.0, -3.0, 5.0])
    results = compiled(function)(x)
    for result, expected in zip(results, function(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert [result.item() for result in results[len(VMAPPED) :]] == [n for _, _, n in NUMBERS]
    torch._dynamo.reset()
    assert reasons(function, x) == {"aten._to_copy.default": "300 does not fit in torch.uint8"}


def test_a_returned_view_is_a_view_and_not_a_copy() -> None:
    graph = lowered(lambda x: (x + 1).view(-1), f32(3, 4))
    (view,) = [n for n in graph.nodes if isinstance(n, Extern)]
    assert view.alias_of == "add"


def test_a_view_that_only_kernels_read_is_not_called() -> None:
    graph = lowered(lambda x: x.t()[1:].unsqueeze(0) * 2, f32(3, 4))
    assert [type(n).__name__ for n in graph.nodes] == ["Pointwise"]


def test_a_node_knows_its_source_line() -> None:
    graph = lowered(lambda x: x.sin(), f32(3))
    (node,) = graph.nodes
    assert node.origin.op == "aten.sin.default"
    assert node.origin.location is not None
    assert node.origin.location.filename == __file__


def test_the_innermost_loop_is_contiguous_in_memory() -> None:
    graph = lowered(lambda x: x + 1, f32(4, 6).t())
    (node,) = graph.nodes
    assert [a.size.constant for a in node.axes] == [4, 6]
    assert [s.constant for s in node.out.stride] == [1, 6]


def test_no_operator_has_two_lowerings() -> None:
    assert not set(LOWERINGS) & set(VIEWS)
    writes = {str(op) for op in (*LOWERINGS, *VIEWS) if op._schema.is_mutable}
    assert writes == {
        "aten.copy_.default", "aten.index_add_.default", "aten.index_copy_.default",
        "aten.index_put_.default", "aten.scatter_.src", "aten.scatter_.value",
        "aten.scatter_add_.default", "aten.scatter_reduce_.two",
    }  # fmt: skip


def test_an_estimate_uses_a_typical_size_for_a_symbol() -> None:
    graph = lowered(lambda x: x * 2, f32(5, 3), dynamic=True)
    (node,) = graph.nodes
    assert estimate(node.out.size[0]) == 128
    assert estimate(to_index(7)) == 7
    assert estimate(node.out.numel) == 128 * 128


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("sum", [6, 0]), ("prod", [0, 0]), ("max", [3, 1]), ("argmax", [3, 2]), ("argmin", [0, 0])],
)
def test_the_interpreter_computes_a_reduction(kind: str, expected: list[int]) -> None:
    values = torch.tensor([[0, 1, 2, 3], [-1, 0, 1, 0]])
    assert reduce(kind, values, [2]).tolist() == expected


def test_an_unknown_reduction_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such reduction: median"):
        reduce("median", torch.ones(2, 2), [2])


# -- ids of graphs ------------------------------------------------------------------------------


def identity(function: Callable[..., Any], *inputs: Any) -> str:
    torch._dynamo.reset()
    (module,) = capture(function, *inputs).aten
    return graph_id(module.graph)


def test_equal_graphs_have_equal_ids_whatever_their_names_are() -> None:
    first = identity(lambda x: (x + 1).sin(), f32(3))
    assert first == identity(lambda other: torch.sin(other + 1), f32(3))
    assert len(first) == 14
    assert first.startswith("g-")


def test_different_operators_arguments_shapes_strides_or_dtypes_give_different_ids() -> None:
    ids = {
        identity(lambda x: (x + 1).sin(), f32(3, 3)),
        identity(lambda x: (x + 1).cos(), f32(3, 3)),
        identity(lambda x: (x + 2).sin(), f32(3, 3)),
        identity(lambda x: (x + 1.0).sin(), f32(3, 3)),
        identity(lambda x: (x + 1).sin(), f32(3, 4)),
        identity(lambda x: (x + 1).sin(), f32(3, 3).t()),
        identity(lambda x: (x + 1).sin(), i64(9, 3, 3)),
    }
    assert len(ids) == 7


def test_a_batch_of_matrix_vector_products_becomes_loops() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, y.transpose(1, 2)).relu()

    inputs = [f32(3, 5, 70), f32(3, 1, 70)]
    once, left = compiled_with_reasons(f)
    assert_as_eager(once, f, inputs)
    assert left == {}
    others = reasons(f, f32(3, 5, 7), f32(3, 2, 7))
    assert others == {"aten.bmm.default": "a product of matrices"}
    assert_as_eager(compiled(f), f, [f32(3, 5, 0), f32(3, 1, 0)])


def test_elements_of_a_result_never_share_memory() -> None:
    """As in eager, even if a fake tensor has the strides of an expanded operand."""
    x = torch.ones(1).expand(2)
    module = aten_graph(lambda x: torch.select_scatter(x, x[0] * 2, 0, 1), x)
    (node,) = module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.select_scatter.default
    )
    node.meta["val"] = node.meta["val"].as_strided((2,), (0,))
    stored = lower_graph(module, Gate()).graph.nodes[-1]
    assert isinstance(stored, Pointwise)
    assert stored.out.stride == (1,)
