"""Producers of which each part of a join or padding reads its own elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from index_strategies import PROPERTY
from judge import assert_same
from programs import f32
from stages import Captured, capture
from torch.nn import functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import LoopNode
from tcdebug.compiler.schedule.inlining.guarded_reads import Reads, guarded_reads
from tcdebug.compiler.schedule.kernel import Kernel

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def kernels(captured: Captured) -> int:
    (schedule,) = captured.schedules
    return sum(isinstance(step, Kernel) for step in schedule.steps)


def gradient_of_glu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    gate = y.sigmoid()
    return torch.cat((x * gate, x * y * gate * (1 - gate)), 1)


JOINS: dict[str, Function] = {
    "rows": lambda x, y: torch.cat((x.tanh(), y.sin().exp())),
    "columns": lambda x, y: torch.cat((x.tanh(), y.sin().exp()), 1),
    "three": lambda x, y: torch.cat((x.tanh(), y.sigmoid(), (x * y).exp()), 1),
    "halves": lambda x, y: torch.cat((x[:, :64].tanh(), y[:, 64:].sin()), 1) * y,
    "gradient of GLU": gradient_of_glu,
    "padded in two dimensions": lambda x, y: F.pad(x.tanh(), (40, 24, 1, 1)),
    "shifted": lambda x, y: F.pad(x.tanh(), (1, 0))[:, :-1] + y,
    "a slice": lambda x, y: torch.slice_scatter(x.exp(), y[:, :64].tanh(), 1, 32, 96),
    "rows that are summed": lambda x, y: torch.cat((x.tanh(), y.sigmoid()), 1).sum(1),
    "rows that are normalised": lambda x, y: torch.cat((x.tanh(), y.sin()), 1).softmax(1),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_parts_of_a_join_read_is_computed_there(name: str) -> None:
    function, inputs = JOINS[name], (f32(48, 128), f32(48, 128))
    assert kernels(capture(function, *inputs)) == 1
    assert kernels(capture(function, *inputs, toggles=Toggles.parse(["fuse.inline"]))) > 1
    compiled = torch.compile(function, backend="tcdebug")
    assert_same(compiled(*inputs), function(*inputs))


STORED: dict[str, tuple[Function, int]] = {
    # function, kernels
    "the loop of a scan is not cut": (
        lambda x, y: torch.cat((x.tanh(), y.sigmoid()), 1).cumsum(1), 3
    ),
    "nor is one over columns, if it is that of what reads the join": (
        lambda x, y: (torch.cat((x.tanh(), y.sigmoid()), 1) * 2).amax(0), 3
    ),
    "short rows are not cut": (
        lambda x, y: torch.stack((x.tanh(), y.sigmoid()), 2), 3
    ),
    "parts of rows that end with points outside of vectors": (
        lambda x, y: torch.cat((x[:, :70].tanh(), y[:, :75].sigmoid()), 1), 3
    ),
    "windows read an element several times": (
        lambda x, y: F.max_pool1d(x.tanh()[None], 3, 2, 1), 2
    ),
    "each half reads all of it, and it takes long": (
        lambda x, y: (lambda t: torch.cat((t * y, t * x), 1))(x.sin().exp().tanh()), 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_what_would_be_computed_several_times_is_stored(name: str) -> None:
    function, expected = STORED[name]
    assert kernels(capture(function, f32(48, 128), f32(48, 128))) == expected


def stored_on_a_gpu(function: Function, dtype: torch.dtype = torch.float32) -> list[list[str]]:
    """The nodes that each kernel of a GPU stores, in the order of the kernels."""
    size = 32768, 1000
    source = triton_of(lambda: (function, (cuda(*size, dtype=dtype), cuda(*size, dtype=dtype))))
    return [sorted(call.kernel.stored) for call in source.calls.values()]


def test_on_a_gpu_both_halves_of_a_gradient_compute_what_they_share() -> None:
    assert stored_on_a_gpu(gradient_of_glu) == [["cat"]]
    assert stored_on_a_gpu(lambda x, y: torch.cat((x.tanh(), y.tanh()), 1)) == [["cat"]]


def half_of_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A join of a function of rows, which are then scaled and summed by columns."""
    rows = torch.cat((x.softmax(1).chunk(2, 1)[0].tanh(), y.chunk(2, 1)[1]), 1)
    return (rows * torch.rsqrt(rows.square().mean(1, keepdim=True) + 1e-6)).sum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_a_join_of_rows_is_stored_by_their_kernel_not_its_parts(
    dtype: torch.dtype,
) -> None:
    """To compute it again takes more instructions than a GPU executes while it loads it."""
    rows, *columns = stored_on_a_gpu(half_of_rows, dtype)
    assert rows == ["cat", "rsqrt"]
    assert all(name.startswith("sum_") for kept in columns for name in kept)


REPEATED: dict[str, tuple[Function, int]] = {
    # function, kernels
    "twice": (lambda x, y: F.gelu(x).repeat(2, 1), 1),
    "each element twice": (lambda x, y: F.gelu(x).repeat_interleave(2, 1), 1),
    "four times": (lambda x, y: F.gelu(x).repeat(4, 1), 2),
    "twice, of what takes long": (lambda x, y: torch.lgamma(x.sin().exp()).repeat(2, 1), 2),
    "in eight parts, each of another": (
        lambda x, y: torch.cat([torch.lgamma(x + k) for k in range(8)], 1), 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_a_gpu_computes_a_repeated_value_again_if_that_takes_less_time_than_to_store_it(
    name: str,
) -> None:
    function, expected = REPEATED[name]
    assert len(stored_on_a_gpu(function)) == expected


def reads_in(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[Reads]:
    """How the node that `function` lowers to reads each of its operands, in their order."""
    torch._dynamo.reset()
    (lowered,) = capture(function, *inputs).lowered
    (node,) = lowered.nodes
    assert isinstance(node, LoopNode)
    return [guarded_reads(node, given.name) for given in lowered.inputs]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4, unique=True))
@settings(PROPERTY, max_examples=25)
def test_each_element_of_joined_tensors_is_read_once(lengths: list[int]) -> None:
    found = reads_in(lambda *x: torch.cat(x), *(f32(length, 8) for length in lengths))
    assert [reads.elements for reads in found] == [length * 8 for length in lengths]
    assert [reads.domain for reads in found] == [sum(lengths) * 8] * len(lengths)


@given(*[st.integers(0, 5)] * 4)
@settings(PROPERTY, max_examples=25)
def test_a_padding_reads_each_element_once(above: int, below: int, left: int, right: int) -> None:
    assume(above + below + left + right)
    size = (3 + above + below, 4 + left + right, 2)
    (reads,) = reads_in(lambda x: F.pad(x, (0, 0, left, right, above, below)), f32(3, 4, 2))
    assert (reads.places, reads.elements) == (1, 3 * 4 * 2)
    assert reads.domain == size[0] * size[1] * size[2]
