"""Tests the embedded compiler on an NVIDIA GPU. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

INF = float("inf")

Program = tuple[Callable[..., Any], tuple[Any, ...]]
Programs = Mapping[str, Callable[[], Program]]


def randn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


def places(*values: int) -> torch.Tensor:
    return torch.tensor(values, device="cuda")


def long_rows(length: int) -> torch.Tensor:
    """Return rows with either infinity, with only infinities, with a NaN, and random ones."""
    x = randn(6, length) * 30
    x[0, 5], x[1, 7], x[2], x[3, length - 1] = INF, -INF, -INF, float("nan")
    x[4, ::2] = -INF
    return x


def reductions() -> Programs:
    """Reductions over rows and over columns."""
    half = torch.bfloat16
    nan = float("nan")
    return {
        "pointwise": lambda: (
            lambda x, y: (x + y).relu() * 2 - torch.sigmoid(x) * y,
            (randn(133, 217), randn(133, 217)),
        ),
        "bias and gelu": lambda: (
            lambda x, b: F.gelu(x + b),
            (randn(133, 217, dtype=half), randn(217, dtype=half)),
        ),
        "gelu": lambda: (
            lambda x: F.gelu(x) + x.erf(),
            (torch.cat([torch.linspace(-12, 12, 9001), torch.tensor([nan, INF, -INF])]).cuda(),),
        ),
        "softmax of long rows with infinities": lambda: (
            lambda x: torch.softmax(x, -1),
            (long_rows(70_001),),
        ),
        "division of rows": lambda: (
            lambda x: (x / x.amax(-1, keepdim=True), x / x.amin(-1, keepdim=True)),
            (torch.tensor([1e-40, 1e-30, 1.0, 1e30, 3e38, 0.0]).cuda()[:, None] * randn(6, 65),),
        ),
        "softmax": lambda: (lambda x: torch.softmax(x, -1), (randn(99, 1000),)),
        "softmax of a long row": lambda: (lambda x: torch.softmax(x, -1), (randn(9, 100_001),)),
        "softmax of halves": lambda: (
            lambda x: torch.softmax(x, -1),
            (randn(19, 128_256, dtype=half),),
        ),
        "softmax of infinities": lambda: (
            lambda x: torch.softmax(x, -1),
            (torch.full((4, 70_000), float("-inf"), device="cuda"),),
        ),
        "log softmax": lambda: (lambda x: torch.log_softmax(x, 0), (randn(90, 70),)),
        "layer norm": lambda: (
            lambda x, w, b: F.layer_norm(x, (640,), w, b),
            (randn(100, 640), randn(640), randn(640)),
        ),
        "layer norm of a long row": lambda: (
            lambda x: F.layer_norm(x, (70_000,)),
            (randn(3, 70_000),),
        ),
        "sum of rows": lambda: (lambda x: x.sum(-1), (randn(120, 3000),)),
        "sum of columns": lambda: (lambda x: x.sum(0), (randn(30_001, 40),)),
        "sum of all": lambda: (lambda x: (x * x).sum(), (randn(501, 7003),)),
        "product": lambda: (lambda x: x.prod(-1), (randn(5, 60),)),
        "norm of all": lambda: (lambda x: x.norm() + x.mean(), (randn(1001, 1003),)),
        "largest of all": lambda: (lambda x: x.amax() - x.amin(), (randn(1001, 1003),)),
        "places": lambda: (lambda x: (x.argmax(-1), x.max(-1), x.argmin(0)), (randn(12, 500),)),
        "places of many": lambda: (lambda x: x.argmax(), (randn(120, 5000),)),
    }


def views() -> Programs:
    """Indices, and reads from other places in memory."""
    return {
        "transpose": lambda: (lambda x, y: x.t() + y, (randn(700, 910), randn(910, 700))),
        "transpose in a batch": lambda: (
            lambda x, y: x.transpose(1, 2) * y,
            (randn(7, 70, 91), randn(7, 91, 70)),
        ),
        "cat": lambda: (lambda x, y: torch.cat([x, y], 1).sin(), (randn(5, 6), randn(5, 7))),
        "pad": lambda: (lambda x: F.pad(x, (1, 2, 3, 4)) + 1, (randn(5, 6),)),
        "index": lambda: (lambda x, i: x[i] * 2, (randn(20, 6), places(1, -1, 5))),
        "embedding": lambda: (lambda w, i: F.embedding(i, w), (randn(20, 6), places(1, 2, 19))),
        "running sum": lambda: (lambda x: x.cumsum(-1), (randn(5, 70),)),
        "running sum of a long row": lambda: (lambda x: x.cumsum(-1), (randn(3, 7003).double(),)),
        "running product": lambda: (lambda x: x.cumprod(0), (randn(7, 5),)),
    }


def elements() -> Programs:
    """Elementwise operators."""
    nan = float("nan")
    return {
        "integers": lambda: (
            lambda x, y: (x // y, x % y, x << 1, x > y, x >> 70),
            (torch.arange(-5, 5, device="cuda"), places(3, -2).repeat(5)),
        ),
        "small integers": lambda: (
            lambda x: (x + x, x * 3, x.sum(), x // 3),
            (torch.arange(100, device="cuda").to(torch.uint8),),
        ),
        "truth": lambda: (lambda x: ((x > 0).any(-1), (x > 0).all(), ~(x > 0)), (randn(50, 6),)),
        "nan": lambda: (
            lambda x: (x.amax(-1), x.argmax(-1), x.clamp(0, 1), x.maximum(x.t())),
            (torch.tensor([[1.0, nan], [2.0, 3.0]], device="cuda"),),
        ),
        "zeros with a sign": lambda: (
            lambda x: (torch.where(x > 0, x, -0.0), -x, 1 / x, x.copysign(-x)),
            (torch.tensor([0.0, -0.0, 2.0], device="cuda"),),
        ),
        "functions": lambda: (
            lambda x: (
                x.exp(),
                x.log(),
                x.sin(),
                x.tan(),
                x.tanh(),
                x.erf(),
                x.expm1(),
                x.log1p(),
                x.sqrt(),
                x.rsqrt(),
                x.round(),
                x.trunc(),
                x.frac(),
                x.floor(),
                x.ceil(),
                x.lgamma(),
                x.atan(),
                x.sinh(),
                x.asinh(),
                x.pow(3),
                x.pow(-1.5),
                x.fmod(0.7),
                x % 0.7,
                x // 0.7,
                x.sign(),
                x.erfc(),
                x.exp2(),
                x.log2(),
                x.isnan(),
                x.signbit(),
            ),
            (torch.linspace(-8, 8, 1001, device="cuda"),),
        ),
    }


def updates(*given: torch.Tensor) -> Any:
    """A step of an optimizer over tensors of which some have the same size, and one is odd."""
    count = len(given) // 4
    x, y, z, steps = (list(given[k * count : (k + 1) * count]) for k in range(4))
    torch._foreach_add_(steps, 1)
    torch._foreach_lerp_(y, z, 0.1)
    scales = torch._foreach_pow(0.9, steps)
    torch._foreach_addcdiv_(x, y, torch._foreach_add(torch._foreach_abs(z), 1), value=-0.1)
    torch._foreach_mul_(x, scales)
    return torch._foreach_norm(z), torch._foreach_clamp_min(x, 0.5)


def lists() -> tuple[torch.Tensor, ...]:
    """Three lists of tensors, and numbers of steps. Some addresses are not divisible by 16."""
    sizes = ((70, 90), (3000,), (70, 90), (1,), (64, 64), (64, 64), (33, 5))
    found = [randn(*size) for _ in range(2) for size in sizes]
    shifted = [randn(F.pad(torch.empty(size), (1, 0)).numel()) for size in sizes]
    last = [
        x[1 : 1 + torch.empty(size).numel()].view(size)
        for x, size in zip(shifted, sizes, strict=True)
    ]
    return (*found, *last, *(torch.tensor(float(k), device="cuda") for k in range(len(sizes))))


def wholes() -> Programs:
    """Layers, updates in place, and programs that also use the CPU."""
    return {
        "doubles": lambda: (lambda x: x * 0.1 + 1e-300, (randn(5, 6).double(),)),
        "variance and mean": lambda: (lambda x: torch.var_mean(x, 0), (randn(501, 6),)),
        "batch norm": lambda: (
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
            (randn(8, 16, 9, 9), randn(16), randn(16)),
        ),
        "flip": lambda: (lambda x: x.flip(0).cumsum(0), (randn(5, 6),)),
        "updates of a list": lambda: (updates, lists()),
        "sums of several tensors": lambda: (
            lambda x, y, z: (x.sum(-1), y.softmax(-1), z.amax(), (x * 2).sum(0), y[2:5] + 1),
            (randn(90, 400), randn(7, 3000), randn(2, 5)),
        ),
        "truth of nothing": lambda: (lambda x: ((x > 0).any(-1), (x > 0).all(-1)), (randn(3, 0),)),
        "empty": lambda: (lambda x: (x + 1, x.sum(0), x.sum()), (randn(0, 6),)),
        "a number": lambda: (lambda x: x * 2 + 1, (torch.tensor(3.0, device="cuda"),)),
        "in place": lambda: (lambda x, y: x.add_(y), (randn(5, 6), randn(5, 6))),
        "in place in a view": lambda: (lambda x, y: x[1:3].mul_(y), (randn(5, 6), randn(2, 6))),
        "a number of the CPU": lambda: (lambda x, y: x * y + 1, (randn(5, 6), torch.tensor(2.5))),
        "a copy to the CPU": lambda: (lambda x: (x * 2).cpu() + 1, (randn(5, 6),)),
        "matmul and bias": lambda: (
            lambda x, w, b: F.relu(F.linear(x, w, b)),
            (randn(5, 6), randn(7, 6), randn(7)),
        ),
        "attention": lambda: (
            lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
            (randn(2, 4, 32, 16),),
        ),
        "convolution": lambda: (
            lambda x, w: F.relu(F.conv2d(x, w)) + 1,
            (randn(2, 3, 16, 16), randn(4, 3, 3, 3)),
        ),
        "pooling": lambda: (lambda x: F.max_pool2d(x, 2), (randn(2, 3, 16, 16),)),
        "scatter": lambda: (
            lambda x, i, s: x.scatter(1, i, s),
            (randn(3, 5), places(0, 1, 4).view(3, 1), randn(3, 1)),
        ),
    }


def programs() -> Programs:
    """Programs of each kind, built lazily because there may be no GPU."""
    return {**reductions(), **views(), **elements(), **wholes()}


NAMES = tuple(programs())


def clones(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in given)


def doubles(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments in float64, which is exact enough to judge float32 results."""
    return tuple(x.double() if x.is_floating_point() else x.clone() for x in given)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


ERRORS_OF_EAGER = 8
"""The permitted multiple of eager's error, since sums are added in another order."""


def check(function: Callable[..., Any], given: tuple[Any, ...], **options: Any) -> None:
    expected_inputs, inputs, exact_inputs = clones(given), clones(given), doubles(given)
    expected = (*tree_leaves(function(*expected_inputs)), *expected_inputs)
    result = tree_leaves(torch.compile(function, backend="tcdebug", **options)(*inputs))
    for place, (wanted, got) in enumerate(zip(expected, (*result, *inputs), strict=True)):
        assert got.stride() == wanted.stride()
        try:
            torch.testing.assert_close(got, wanted, equal_nan=True)
        except AssertionError:
            if got.dtype != torch.float32 or got.shape != wanted.shape:
                raise
            exact = (*tree_leaves(function(*exact_inputs)), *exact_inputs)[place]
            off, allowed = ((x.double() - exact).abs().max().item() for x in (got, wanted))
            assert off <= ERRORS_OF_EAGER * allowed, f"off by {off}, eager by {allowed}"


@pytest.mark.parametrize("name", NAMES)
def test_results_equal_those_of_eager(name: str) -> None:
    check(*programs()[name]())


@pytest.mark.parametrize("name", NAMES)
def test_results_with_dynamic_sizes_equal_those_of_eager(name: str) -> None:
    check(*programs()[name](), dynamic=True)


def test_gradients_are_those_of_eager() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.GELU(), torch.nn.Linear(128, 8)
    ).cuda()
    x = randn(33, 64)

    def gradients(function: Callable[..., Any]) -> list[torch.Tensor]:
        model.zero_grad()
        function(x).pow(2).mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(model)
    result = gradients(torch.compile(model, backend="tcdebug"))
    for wanted, got in zip(expected, result, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_addresses_that_sixteen_does_not_divide_get_a_version_of_their_own() -> None:
    x = randn(1001)
    function = torch.compile(lambda t: t * 2 + 1, backend="tcdebug")
    for start in (0, 1, 2, 4):
        part = x[start : start + 900]
        torch.testing.assert_close(function(part.clone()), part * 2 + 1)
        torch.testing.assert_close(function(part), part * 2 + 1)


def test_a_thread_may_begin_with_a_kernel() -> None:
    """A thread without a CUDA context, like the thread of autograd that compiles backward."""
    x, results = randn(33, 17), list[torch.Tensor]()
    function = torch.compile(lambda t: t.sin() + 1, backend="tcdebug")
    for _ in range(2):  # one that compiles, one that launches
        thread = threading.Thread(target=lambda: results.append(function(x)))
        thread.start()
        thread.join()
    assert len(results) == 2
    for result in results:
        torch.testing.assert_close(result, x.sin() + 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_quotients_of_half_numbers_are_those_of_eager(dtype: torch.dtype) -> None:
    numbers = torch.arange(1 << 16, device="cuda").to(torch.int16).view(dtype)
    divide = torch.compile(lambda x, y: x / y, backend="tcdebug")
    for some in numbers.split(1 << 12):
        found, expected = divide(some[:, None], numbers), some[:, None] / numbers
        bits, others = found.view(torch.int16), expected.view(torch.int16)
        assert torch.equal(found.isnan(), expected.isnan())
        assert not ((bits != others) & ~expected.isnan()).any()


def test_all_logarithms_of_bfloat16_numbers_are_those_of_eager() -> None:
    numbers = torch.arange(1 << 16, device="cuda").to(torch.int16).view(torch.bfloat16)
    found, expected = torch.compile(torch.log, backend="tcdebug")(numbers), numbers.log()
    assert torch.equal(found.isnan(), expected.isnan())
    differ = found.view(torch.int16) != expected.view(torch.int16)
    assert not (differ & ~expected.isnan()).any()
