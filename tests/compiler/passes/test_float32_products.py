"""Products of half types on a CPU without instructions for them, whatever this CPU has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from graphs import aten_graph, ops
from judge import compiled, copies, gradients
from programs import f32
from stages import Captured, compile_with, recording_backend
from torch.nn import functional as F

from tcdebug.compiler import seams
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.passes.float32_products import COSTS, float32_products

UNIT = "passes.float32_products"
HALVES = (torch.bfloat16, torch.float16)
TRANSPOSED = {"stride": 2, "padding": 1}


@pytest.fixture(autouse=True)
def without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "has_onednn", lambda dtype: False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@dataclass(frozen=True)
class Case:
    """A function of tensors of given sizes, whose products are slow in half types."""

    function: Callable[..., Any]
    sizes: tuple[tuple[int, ...], ...]
    format: torch.memory_format = torch.contiguous_format

    def inputs(self, dtype: torch.dtype) -> list[torch.Tensor]:
        given = [f32(*size).to(dtype) for size in self.sizes]
        fits = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(self.format)
        return [
            (t.to(memory_format=self.format) if t.dim() == fits else t).requires_grad_()
            for t in given
        ]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(64, 64, dtype=torch.bool).tril()
    bias = torch.zeros(64, 64, dtype=q.dtype).masked_fill(~mask, -1e4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


SQUARES = ((64, 64), (64, 64))
BATCH = ((8, 32, 32), (8, 32, 32))
HEADS = ((1, 4, 64, 32),) * 3
IMAGE = (2, 16, 24, 24)
CASES = {
    "linear": Case(F.linear, (*SQUARES, (64,))),
    "of_rows": Case(torch.mm, SQUARES),
    "of_columns": Case(lambda x, y: x.t() @ y.t(), SQUARES),
    "fused": Case(lambda x, y: (F.gelu(x) @ y).relu() + x, SQUARES),
    "in_place": Case(lambda x, y: (x @ y).mul_(2).t(), SQUARES),
    "scaled": Case(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=3), ((64,), *SQUARES)),
    "batched": Case(torch.bmm, BATCH),
    "added_to": Case(lambda b, x, y: torch.baddbmm(b, x, y), ((8, 32, 32), *BATCH)),
    "added_up": Case(lambda c, x, y: torch.addbmm(c, x, y), ((32, 32), *BATCH)),
    "einsum": Case(lambda x, y: torch.einsum("bij,bkj->bik", x, y), BATCH),
    "conv1d": Case(F.conv1d, ((4, 16, 200), (32, 16, 5), (32,))),
    "conv2d": Case(F.conv2d, (IMAGE, (24, 16, 3, 3), (24,))),
    "channels_last": Case(F.conv2d, (IMAGE, (24, 16, 3, 3)), torch.channels_last),
    "grouped": Case(lambda x, w: F.conv2d(x, w, groups=2), (IMAGE, (24, 8, 3, 3))),
    "one_by_one": Case(lambda x, w: F.conv2d(x, w, groups=16), (IMAGE, (16, 1, 3, 3))),
    "dilated": Case(lambda x, w: F.conv2d(x, w, dilation=2), (IMAGE, (24, 16, 3, 3))),
    "transposed": Case(
        lambda x, w: F.conv_transpose2d(x, w, **TRANSPOSED), ((2, 16, 12, 12), (16, 32, 4, 4))
    ),
    "conv3d": Case(F.conv3d, ((1, 8, 8, 12, 12), (16, 8, 3, 3, 3)), torch.channels_last_3d),
    "attention": Case(attention, HEADS),
    "masked": Case(masked, HEADS),
}


def dtypes(function: Callable[..., Any], *inputs: torch.Tensor) -> set[torch.dtype]:
    """The dtypes of the operands of products, forward and backward."""
    captured = Captured(interpreted="nothing")
    gradients(torch.compile(function, backend=recording_backend(captured)), inputs)
    forward, backward = captured.aten
    return {
        node.args[0].meta["val"].dtype
        for graph in (forward, backward)
        for node in graph.graph.nodes
        if node.target in COSTS
    }


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_products_in_float32_are_as_accurate_as_in_eager(name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    inputs = case.inputs(dtype)
    exact = gradients(case.function, [x.detach().double().requires_grad_() for x in inputs])
    eager = gradients(case.function, copies(inputs))
    ours = gradients(compiled(case.function), copies(inputs))
    for right, wanted, found in zip(exact, eager, ours, strict=True):
        allowed = 1.1 * (wanted.double() - right).norm() + 1e-3 * right.norm()
        assert (found.double() - right).norm() <= allowed
        assert (found.dtype, found.stride()) == (wanted.dtype, wanted.stride())


@pytest.mark.parametrize("name", CASES)
def test_products_of_float16_and_their_gradients_are_computed_in_float32(name: str) -> None:
    case = CASES[name]
    assert dtypes(case.function, *case.inputs(torch.float16)) == {torch.float32}


def test_a_type_with_instructions_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "has_onednn", lambda dtype: dtype == torch.bfloat16)
    linear = CASES["linear"]
    assert dtypes(linear.function, *linear.inputs(torch.bfloat16)) == {torch.bfloat16}
    assert dtypes(linear.function, *linear.inputs(torch.float16)) == {torch.float32}


CONVOLUTIONS = ("conv1d", "conv2d", "channels_last", "grouped", "dilated", "transposed", "conv3d")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions_in_float16_are_computed_in_float32_on_any_processor(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams, "has_onednn", lambda dtype: True)
    case = CASES[name]
    found = dtypes(case.function, *case.inputs(torch.float16))
    assert found == {torch.float16, torch.float32}
    assert dtypes(case.function, *case.inputs(torch.bfloat16)) == {torch.bfloat16}


def test_float32_and_float64_stay() -> None:
    for dtype in (torch.float32, torch.float64):
        inputs = CASES["linear"].inputs(dtype)
        assert not float32_products(aten_graph(F.linear, *inputs).graph)


def changes(function: Callable[..., Any], *inputs: torch.Tensor) -> bool:
    """Whether the pass changes a product of given inputs."""
    return float32_products(aten_graph(function, *inputs).graph)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_product_stays_where_converting_takes_longer(dtype: torch.dtype) -> None:
    def given(*size: int) -> torch.Tensor:
        return f32(*size).to(dtype)

    one, few, many = given(1, 512), given(4, 512), given(64, 512)
    matrix = given(512, 512)
    assert not changes(torch.mm, given(8, 8), given(8, 8))
    assert not changes(torch.mm, one, matrix.t())  # ATen reads both along rows
    assert changes(torch.mm, few, matrix.t())
    assert changes(torch.mm, one, matrix)
    assert changes(torch.mm, many, matrix.t())
    assert not changes(torch.bmm, given(4, 8, 8), given(4, 8, 8))
    assert not changes(F.conv2d, given(1, 3, 8, 8), given(4, 3, 3, 3))
    assert not changes(attention, *(given(1, 1, 8, 8) for _ in range(3)))


def test_with_more_threads_a_weight_is_converted_for_more_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    matrix = f32(512, 512).half()
    assert not changes(torch.mm, f32(4, 512).half(), matrix.t())
    assert changes(torch.mm, f32(64, 512).half(), matrix.t())


def test_attention_in_bfloat16_is_only_slow_backward() -> None:
    case = CASES["attention"]
    assert not changes(attention, *case.inputs(torch.bfloat16))
    found = dtypes(attention, *case.inputs(torch.bfloat16))
    assert found == {torch.bfloat16, torch.float32}


def test_operands_and_results_of_autocast_are_rounded_once() -> None:
    x, w = f32(64, 64), f32(64, 64)

    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(x, w)

    right = F.linear(*(t.bfloat16().double() for t in (x, w)))
    error = (compiled(linear)(x, w).double() - right).abs()
    assert (error <= 2**-8 * right.abs()).all()


def test_products_of_symbolic_sizes_are_computed_in_float32() -> None:
    function = compiled(lambda x, w: F.linear(x, w).relu(), dynamic=True)
    w = f32(64, 64).half()
    for rows in (2, 64, 1):
        x = f32(rows, 64).half()
        right = F.linear(x.double(), w.double()).relu()
        torch.testing.assert_close(function(x, w).double(), right, rtol=1e-3, atol=1e-3)


def test_the_pass_can_be_switched_off() -> None:
    module = aten_graph(torch.mm, *CASES["of_rows"].inputs(torch.float16))
    stages = compile_with(Gate(Toggles.parse([UNIT]))).stages("inference")
    stages.run_passes("passes", module, {UNIT: float32_products})
    assert ops(module) == {"mm.default": 1}
