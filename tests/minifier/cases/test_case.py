"""Cases: captured graphs, their keys, and copies of their inputs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import Recorded, captured, targets
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput, clone_values, flatten, tensors_of
from tcdebug.minifier.judging.replay import run


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ y).sum(-1)


def test_a_captured_graph_has_its_calls_and_inputs() -> None:
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    case = captured(product, x, y)
    assert targets(case) == ["matmul", "relu", "sum"]
    assert case.size == 3
    assert [i.name for i in case.inputs] == ["L_x_", "L_y_"]
    assert [i.dynamic for i in case.inputs] == [(), ()]
    assert case.values()[0] is x
    assert torch.equal(case.module(*case.values())[0], product(x, y))


def test_parameters_are_inputs() -> None:
    linear = torch.nn.Linear(3, 2)
    case = captured(lambda x: linear(x).tanh(), torch.randn(4, 3))
    assert [tuple(v.shape) for v in case.values()] == [(2, 3), (2,), (4, 3)]
    assert [v.requires_grad for v in case.values()] == [True, True, False]
    assert case.attributes() == {}


def test_sizes_that_are_symbolic_are_read_from_the_tensors() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view(-1) * x.shape[0] + y.sum() * y.shape[1]

    x, y = torch.randn(5, 4), torch.randn(2, 7)
    case = captured(scaled, x, y, dynamic=True)
    assert [i.name for i in case.inputs] == ["L_x_", "L_y_"]
    assert all(isinstance(i.value, torch.Tensor) for i in case.inputs)
    assert [i.dynamic for i in case.inputs] == [(0, 1), (0, 1)]
    assert targets(case) == ["size", "size", "view", "mul", "sum", "mul", "add"]
    for rows in (5, 3):
        x = torch.randn(rows, 4)
        assert torch.equal(case.module(x, y)[0], scaled(x, y))


def shifted(n: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that reads an integer from its closure."""
    return lambda x: x * n


INTEGERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "an argument": (lambda x, n: x * n, (7,), (7,)),
    "an element of a list": (lambda x, ns: x * ns[1], ([3, 7],), (7,)),
    "two arguments": (lambda x, n, m: x * n + m, (7, 9), (7, 9)),
    "in a closure": (shifted(7), (), (7,)),
    "the size of a tensor that is not read": (
        lambda x, y: x * y.shape[1], (torch.zeros(2, 7),), (7,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_that_may_change_may_change_when_its_graph_is_captured_again(name: str) -> None:
    """As a plain integer, it would be a constant, and what is wrong for others would be right."""
    function, given, expected = INTEGERS[name]
    x = torch.ones(3)
    case = captured(function, x, *given, dynamic=True)
    assert torch.equal(case.module(*case.values())[0], function(x, *given))
    read = [i for i in case.inputs if isinstance(i.value, torch.Tensor) and i.value.ndim == 2]
    assert tuple(i.value.shape[0] for i in read) == expected
    for value, spec in zip(case.values(), case.inputs, strict=True):
        for dim in spec.dynamic:
            torch._dynamo.maybe_mark_dynamic(value, dim)
    recorded = Recorded()
    again = torch.compile(case.module, backend=recorded, fullgraph=True)
    assert torch.equal(again(*case.values())[0], function(x, *given))
    ((module, _),) = recorded.graphs
    examples = [n.meta["example_value"] for n in module.graph.nodes if n.op == "placeholder"]
    numbers = [e for e in examples if isinstance(e, torch.SymInt)]
    assert {int(e.node.hint) for e in numbers} >= set(expected)


class Running(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0))
        return (x * self.weight - self.mean).sum()


def test_a_buffer_has_a_fixed_address_when_its_graph_is_captured_again() -> None:
    """AOTAutograd saves such a tensor for backward rather than what is computed from it."""
    case = captured(Running(), torch.ones(3, 2))
    assert [i.value.shape for i in case.inputs if i.fixed] == [(2,)]
    recorded = Recorded()
    run(torch.compile(case.module, backend=recorded, fullgraph=True), case, mark=True)
    ((module, _),) = recorded.graphs
    named = [n.meta["tensor_dict"] for n in module.graph.nodes if n.op == "placeholder"]
    fixed = ["_dynamo_static_input_type" in tensor for tensor in named]
    kinds = [isinstance(v, torch.nn.Parameter) for v in case.values()]
    assert fixed == [a or b.fixed for a, b in zip(kinds, case.inputs, strict=True)]


@pytest.mark.parametrize("number", [-3, 1])
def test_an_integer_that_is_no_size_stays_an_input(number: int) -> None:
    case = captured(lambda x, n: x * n, torch.ones(3), number, dynamic=True)
    assert [v for v in case.values() if isinstance(v, int)] in ([number], [])
    assert torch.equal(case.module(*case.values())[0], torch.full((3,), float(number)))


class Scaled(torch.nn.Module):
    """A module with a float, which Dynamo passes as a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).tanh() * self.scale


def test_a_float_that_may_change_is_an_input_and_can_be_captured_again() -> None:
    x = torch.randn(3)
    case = captured(Scaled(), x, dynamic=True)
    assert targets(case) == ["mul", "tanh", "mul"]
    assert [v for v in case.values() if isinstance(v, float)] == [2.5]
    again = torch.compile(case.module, backend="eager", fullgraph=True)
    assert torch.equal(again(*case.values())[0], Scaled()(x))


def test_a_tensor_that_the_program_reads_stays_a_tensor() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        case = captured(lambda x, y: x * y.item(), torch.ones(3), torch.tensor(2.5).double())
    assert "item" in targets(case)
    assert all(isinstance(v, torch.Tensor) for v in case.values())


def test_nodes_keep_their_metadata() -> None:
    case = captured(product, torch.randn(2, 3), torch.randn(3, 4))
    shapes = [tuple(n.meta["example_value"].shape) for n in case.calls]
    assert shapes == [(2, 4), (2, 4), (2,)]


def test_an_unused_input_is_dropped() -> None:
    case = captured(product, torch.randn(2, 3), torch.randn(3, 4))
    graph = fx.Graph()
    for name in ("L_x_", "L_y_"):
        graph.placeholder(name)
    graph.output((graph.call_function(torch.tanh, (next(iter(graph.nodes)),)),))
    smaller = case.with_graph(graph)
    assert [i.name for i in smaller.inputs] == ["L_x_"]
    assert len(case.inputs) == 2
    assert torch.equal(smaller.module(case.values()[0])[0], case.values()[0].tanh())


def test_inputs_are_replaced_by_name() -> None:
    case = captured(product, torch.zeros(2, 3), torch.zeros(3, 4))
    changed = case.with_inputs({"L_y_": CaseInput("L_y_", torch.ones(3, 4))})
    assert torch.equal(changed.values()[1], torch.ones(3, 4))
    assert torch.equal(case.values()[1], torch.zeros(3, 4))
    assert changed.values()[0] is case.values()[0]


# -- keys -----------------------------------------------------------------------------------

KEY = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from captured import captured
case = captured(lambda x: (x + 1).tanh(), torch.arange(6.0).view(2, 3))
sys.stdout.write(case.key)
"""


def test_a_key_is_the_same_in_every_process(warm_python: str) -> None:
    """Processes differ in the seed of their hashes."""
    case = captured(lambda x: (x + 1).tanh(), torch.arange(6.0).view(2, 3))
    support = Path(__file__).parents[1] / "support"
    done = subprocess.run(
        [warm_python, "-c", KEY, str(support)], capture_output=True, text=True, check=True
    )
    assert done.stdout == case.key
    assert len(case.key) == 16


def key_of(function: Any, *values: Any, dynamic: bool = False) -> str:
    torch._dynamo.reset()
    return captured(function, *values, dynamic=dynamic).key


def test_the_memory_that_inputs_share_is_part_of_a_key() -> None:
    x = torch.zeros(4)
    others = (x[:2], x[2:], x[:2].clone())
    keys = [key_of(lambda a, b: a[:2].sin() + b, x, other) for other in others]
    assert len(set(keys)) == 3
    assert keys == [key_of(lambda a, b: a[:2].sin() + b, *clone_values((x, o))) for o in others]


def test_names_do_not_change_a_key() -> None:
    x = torch.ones(3)
    assert key_of(lambda x: x.sin(), x) == key_of(lambda other: other.sin(), x)


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([1.0, 2.0, 4.0]),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
        torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
        torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0, 0.0])[::2],
        torch.tensor([[1.0, 2.0, 3.0]]),
    ],
)
def test_every_property_of_an_input_changes_the_key(other: torch.Tensor) -> None:
    assert key_of(torch.sin, other) != key_of(torch.sin, torch.tensor([1.0, 2.0, 3.0]))


def test_keys_of_dtypes_without_arithmetic_depend_on_contents() -> None:
    one = CaseInput("x", torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn))
    two = CaseInput("x", torch.tensor([1.0, 4.0]).to(torch.float8_e4m3fn))
    case = captured(lambda x: x.to(torch.float32), one.value)
    name = case.inputs[0].name
    keys = {case.with_inputs({name: CaseInput(name, i.value)}).key for i in (one, two)}
    assert len(keys) == 2


def test_a_lazily_conjugated_input_has_a_different_key() -> None:
    x = torch.tensor([1 + 2j])
    case = captured(torch.abs, x)
    name = case.inputs[0].name
    assert case.with_inputs({name: CaseInput(name, x.conj())}).key != case.key


def test_a_dynamic_dimension_changes_the_key() -> None:
    x = torch.ones(3, 2)
    assert key_of(torch.sin, x) != key_of(torch.sin, x, dynamic=True)


def constant_case(value: torch.Tensor) -> Case:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, graph.get_attr("c"))),))
    root = torch.nn.Module()
    root.register_buffer("c", value)
    return Case(fx.GraphModule(root, graph), (CaseInput("x", torch.ones(2)),))


def test_a_constant_changes_the_key() -> None:
    assert constant_case(torch.ones(2)).key == constant_case(torch.ones(2)).key
    assert constant_case(torch.ones(2)).key != constant_case(torch.zeros(2)).key
    assert list(constant_case(torch.ones(2)).attributes()) == ["c"]


def test_the_body_of_an_inner_graph_changes_the_key() -> None:
    def chosen(x: torch.Tensor, shift: float) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + shift, lambda y: y * 2, (x,))

    x = torch.ones(3)
    assert key_of(lambda x: chosen(x, 1.0), x) == key_of(lambda x: chosen(x, 1.0), x)
    assert key_of(lambda x: chosen(x, 1.0), x) != key_of(lambda x: chosen(x, 2.0), x)


def test_metadata_does_not_change_a_key() -> None:
    case = captured(product, torch.ones(2, 3), torch.ones(3, 4))
    key = case.key
    for node in case.calls:
        node.meta.clear()
    assert Case(case.module, case.inputs).key == key


def test_a_constant_of_an_inner_graph_changes_the_key() -> None:
    def outer(value: torch.Tensor) -> Case:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output((graph.call_module("inner", (x,)),))
        root = torch.nn.Module()
        root.inner = constant_case(value).module
        return Case(fx.GraphModule(root, graph), (CaseInput("x", torch.ones(2)),))

    assert outer(torch.ones(2)).key == outer(torch.ones(2)).key
    assert outer(torch.ones(2)).key != outer(torch.zeros(2)).key
    assert outer(torch.ones(2)).size == 2


# -- copies ---------------------------------------------------------------------------------


def test_copies_share_memory_as_their_originals_do() -> None:
    base = torch.arange(12.0)
    values = [base[:8], base[4:], torch.zeros(3)]
    first, second, third = clone_values(values)
    assert torch.equal(first, base[:8])
    assert torch.equal(second, base[4:])
    first[4] = 100.0
    assert second[0] == 100.0
    assert base[4] == 4.0
    assert third.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()


def test_copies_of_two_dtypes_share_memory_too() -> None:
    base = torch.zeros(4)
    number, bits = clone_values([base, base.view(torch.int32)])
    number.fill_(1.0)
    assert bits.tolist() == [0x3F800000] * 4


def test_copies_of_another_dtype_share_memory_as_their_originals_do() -> None:
    base = torch.arange(12.0)
    given = [base[:8], base[4:], base.view(3, 4).t()]
    first, second, third = clone_values(given, lambda memory: memory.double())
    assert (first.dtype, third.stride()) == (torch.float64, (1, 4))
    first[4] = 100.0
    assert second[0] == third[0, 1] == 100.0
    assert base[4] == 4.0


def test_a_tensor_passed_twice_is_one_tensor_in_the_copies() -> None:
    x = torch.zeros(3)
    first, second = clone_values([x, x])
    assert first is second, "AOTAutograd refuses two on one memory where sizes are symbolic"
    first += 1
    assert x.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0).view(2, 3).t(),
        torch.arange(10.0)[3::2],
        torch.ones(3, 1).expand(3, 4),
        torch.arange(4).to(torch.bfloat16),
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor([[0.0, 1.0]]).to_sparse(),
    ],
)
def test_a_copy_is_laid_out_as_its_original(value: torch.Tensor) -> None:
    (copy,) = clone_values([value])
    assert copy is not value
    assert (copy.dtype, copy.shape, copy.layout) == (value.dtype, value.shape, value.layout)
    if value.layout == torch.strided and not value.is_conj() and not value.is_neg():
        assert copy.stride() == value.stride()
        assert copy.storage_offset() == value.storage_offset()
    assert copy.is_conj() == value.is_conj()
    assert copy.is_neg() == value.is_neg()
    assert torch.equal(copy.to_dense(), value.to_dense())


def test_copies_are_leaves_of_autograd_where_their_originals_are() -> None:
    x = torch.ones(2, requires_grad=True)
    leaf, inner, plain = clone_values([x, x * 2, torch.ones(2)])
    assert [leaf.requires_grad, inner.requires_grad, plain.requires_grad] == [True, True, False]
    assert [leaf.is_leaf, inner.is_leaf, plain.is_leaf] == [True, False, True]
    assert leaf.grad is None


def test_parameters_stay_parameters() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    copies = clone_values([weight, frozen])
    assert [type(c) for c in copies] == [torch.nn.Parameter, torch.nn.Parameter]
    assert [c.requires_grad for c in copies] == [True, False]


def test_a_value_that_is_not_a_tensor_is_passed_as_it_is() -> None:
    assert clone_values([3, 2.5, None, "a"]) == [3, 2.5, None, "a"]


def test_leaves_of_nested_values_are_in_order() -> None:
    a, b = torch.ones(1), torch.ones(2)
    value = (a, [1, {"k": b, "l": None}], ())
    assert [v is w for v, w in zip(flatten(value), [a, 1, b, None], strict=True)] == [True] * 4
    assert [v is w for v, w in zip(tensors_of(value), [a, b], strict=True)] == [True] * 2
