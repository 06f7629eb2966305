"""One compile for many sizes, and sizes that depend on data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from judge import assert_same, compiled
from programs import f32
from torch import fx
from torch.nn import functional as F

from tcdebug.compiler.backend import backend


class Counting:
    """The compiler, which counts the graphs that it receives."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return backend(module, inputs)


def compile_counted(function: Callable[..., Any], **options: Any) -> tuple[Any, Counting]:
    counting = Counting()
    return torch.compile(function, backend=counting, **options), counting


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).sin(),
    "softmax": lambda x: torch.softmax(x, -1) + x.mean(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "reshape": lambda x: x.reshape(-1, 1) * x.shape[0],
    "flatten_back": lambda x: (x.flatten() + 1).view(x.shape).t(),
    "slices": lambda x: x[1:] - x[:-1],
    "halves": lambda x: x[: x.shape[0] // 2] * 2,
    "cat": lambda x: torch.cat([x, x * 2], 0),
    "pad": lambda x: F.pad(x, (1, 2)),
    "reductions": lambda x: (x.sum(0), x.amax(1), x.argmax(), x.var(1)),
    "matmul": lambda x: x @ x.t() + x.shape[1],
    "arange": lambda x: x + torch.arange(x.shape[1]),
    "zeros": lambda x: torch.zeros(x.shape[0], 3) + x.sum(),
    "flip_repeat": lambda x: x.flip(0).repeat(2, 1),
    "sqrt_of_size": lambda x: x / x.shape[1] ** 0.5,
    "tril": lambda x: x.tril(),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_compile_serves_many_sizes(name: str) -> None:
    f, counting = compile_counted(FUNCTIONS[name], dynamic=True)
    for size in ((4, 6), (5, 7), (33, 17), (6, 130)):
        assert_same(f(f32(*size)), FUNCTIONS[name](f32(*size)))
    assert counting.graphs == 1


def test_only_sizes_zero_and_one_are_specialised() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum() + x.shape[0]

    f, counting = compile_counted(function, dynamic=True)
    seen = []
    for size in (5, 6, 100, 1, 0, 7, 1, 0, 64):
        assert_same(f(torch.ones(size)), function(torch.ones(size)))
        seen.append(counting.graphs)
    assert seen == [1, 1, 1, 2, 3, 3, 3, 3, 3]


def test_a_second_size_makes_the_size_dynamic() -> None:
    f, counting = compile_counted(lambda x: x * 2)
    for size in (3, 4, 5, 6, 7):
        assert f(torch.ones(size)).tolist() == [2.0] * size
    assert counting.graphs == 2


def test_a_stride_that_depends_on_a_size() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous() + 1

    f, counting = compile_counted(function, dynamic=True)
    for size in ((3, 4), (7, 2), (5, 9)):
        assert_same(f(f32(*size)), function(f32(*size)))
    assert counting.graphs == 1


def test_gradients_for_many_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).pow(2).sum()

    f, counting = compile_counted(function, dynamic=True)
    for size in ((4, 6), (5, 7), (8, 3)):
        mine, theirs = f32(*size).requires_grad_(), f32(*size).requires_grad_()
        f(mine).backward()
        function(theirs).backward()
        assert_same(mine.grad, theirs.grad)
    assert counting.graphs == 1


def test_a_number_as_an_argument_is_a_symbolic_size() -> None:
    f, counting = compile_counted(lambda x, n: x * n + n, dynamic=True)
    assert [f(torch.ones(2), n).tolist() for n in (3, 4, 9)] == [[6, 6], [8, 8], [18, 18]]
    assert counting.graphs == 1


# -- sizes that depend on data ------------------------------------------------------------------


@pytest.fixture
def whole_graphs() -> Iterator[None]:
    """Dynamo captures data-dependent operators instead of breaking the graph."""
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        yield


DATA = [torch.tensor([1.0, 0, 2, 0, 3]), torch.tensor([1.0, 1, 1]), torch.zeros(4), torch.eye(3)[0]]


@pytest.mark.usefixtures("whole_graphs")
def test_nonzero_has_as_many_rows_as_the_data_has_nonzeros() -> None:
    def function(x: torch.Tensor) -> Any:
        places = x.nonzero().flatten()
        return places + 1, x[places] * 2, places.sum()

    f, counting = compile_counted(function, dynamic=True, fullgraph=True)
    for x in DATA:
        assert_same(f(x), function(x))
    assert counting.graphs == 1


@pytest.mark.usefixtures("whole_graphs")
def test_a_mask_selects_a_data_dependent_number_of_elements() -> None:
    def function(x: torch.Tensor) -> Any:
        chosen = x[x > 0.5]
        return chosen.exp(), chosen.sum(), chosen.unsqueeze(1).expand(-1, 3) + 1

    f, counting = compile_counted(function, dynamic=True, fullgraph=True)
    for x in DATA:
        assert_same(f(x), function(x))
    assert counting.graphs == 1


@pytest.mark.usefixtures("whole_graphs")
def test_an_integer_read_from_a_tensor_is_data() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n.item() + n.item()

    f, counting = compile_counted(function, fullgraph=True)
    for n in (torch.tensor(2), torch.tensor(-3), torch.tensor(7)):
        assert_same(f(f32(4), n), function(f32(4), n))
    assert counting.graphs == 1


@pytest.mark.usefixtures("whole_graphs")
def test_a_float_read_from_a_tensor_is_data() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n.item() + x.sum()

    f, counting = compile_counted(function, fullgraph=True)
    for value in (0.5, -2.25, 1e10):
        assert_same(f(f32(4), torch.tensor(value)), function(f32(4), torch.tensor(value)))
    assert counting.graphs == 1


@pytest.mark.usefixtures("whole_graphs")
def test_a_size_read_from_a_tensor() -> None:
    def function(n: torch.Tensor) -> torch.Tensor:
        size = n.item()
        torch._check(size >= 0)
        return torch.ones(size) * 2 + torch.arange(size)

    f, counting = compile_counted(function, fullgraph=True)
    graphs = []
    for size in (3, 17, 5, 0, 1):
        assert_same(f(torch.tensor(size)), function(torch.tensor(size)))
        graphs.append(counting.graphs)
    assert graphs == [1, 1, 1, 2, 3]


def test_without_capture_the_graph_breaks_and_the_result_is_right() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 3:
            y = y + 1
        return y.nonzero().flatten() * 3

    f, counting = compile_counted(function)
    for x in (torch.ones(4), torch.zeros(4), torch.eye(3)[0]):
        assert_same(f(x), function(x))
    assert counting.graphs > 1


def test_the_plain_backend_supports_dynamic_sizes() -> None:
    f = compiled(lambda x: x.sum(0), dynamic=True)
    assert f(torch.ones(3, 2)).tolist() == [3.0, 3.0]
