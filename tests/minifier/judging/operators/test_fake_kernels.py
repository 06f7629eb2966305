"""Fake kernels of torch's operators that do not describe the results are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from captured import captured
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from tcdebug.minifier.judging.operators.fake_kernels import wrong_fake_kernels

aten = torch.ops.aten
Kernel = Callable[..., Any]


@pytest.fixture
def fake_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[OpOverload, Kernel], None]]:
    """Replace the fake kernels of operators of torch."""
    replaced: list[OpOverload] = []

    def forget_results() -> None:
        FakeTensorMode.cache_clear()
        for operator in replaced:
            operator._dispatch_cache.clear()

    def replace(operator: OpOverload, kernel: Kernel) -> None:
        replaced.append(operator)
        monkeypatch.setitem(operator.py_kernels, DispatchKey.Meta, kernel)
        forget_results()

    yield replace
    monkeypatch.undo()
    forget_results()


def said_of(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    return wrong_fake_kernels(captured(function, *inputs), "candidate.py")


def transposed(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="meta").t()


def in_double(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float64, device="meta")


def sorted_columns(x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return transposed(x), torch.empty(x.shape, dtype=torch.int64, device="meta")


def scan(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * 2, 0) + 1


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x)[0].exp()


@pytest.mark.parametrize("gradients", [False, True])
def test_no_fake_kernel_is_named_if_all_describe_the_results(gradients: bool) -> None:
    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        product = torch.nn.functional.layer_norm(x @ weight, (4,)).transpose(0, 1)
        values = torch.sort(product.softmax(-1))[0].cumsum(0)[1:].new_empty(0, 3), x.t()
        return values[1].flip(0).expand(2, 4, 4).sum(1)

    inputs = [torch.rand(4, 4).requires_grad_(gradients) for _ in range(2)]
    assert said_of(block, *inputs) == []


@pytest.mark.parametrize(
    ("operator", "kernel", "function", "expected"),
    [
        (
            aten.cumsum.default,
            transposed,
            scan,
            "the fake kernel of aten.cumsum.default, which backends trust, is wrong: it says "
            "strides [1, 4], but the result has [4, 1]",
        ),
        (
            aten.cumsum.default,
            in_double,
            scan,
            "the fake kernel of aten.cumsum.default, which backends trust, is wrong: it says "
            "dtype torch.float64, but the result has torch.float32",
        ),
        (
            aten.sort.default,
            sorted_columns,
            rows,
            "the fake kernel of aten.sort.default, which backends trust, is wrong: it says "
            "strides [1, 4], but the result has [4, 1]",
        ),
    ],
)
def test_a_wrong_fake_kernel_is_named_with_what_differs(
    fake_kernel: Callable[[OpOverload, Kernel], None],
    operator: OpOverload,
    kernel: Kernel,
    function: Callable[..., Any],
    expected: str,
) -> None:
    fake_kernel(operator, kernel)
    assert said_of(function, torch.rand(4, 4)) == [expected]


def test_a_wrong_fake_kernel_in_backward_is_named(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    fake_kernel(aten.cumsum.default, transposed)
    x = torch.rand(4, 4, requires_grad=True)
    (said,) = said_of(lambda x: torch.cumprod(x, 0), x)
    assert said.startswith("the fake kernel of aten.cumsum.default, ")


def test_strides_of_dimensions_without_steps_do_not_matter(
    fake_kernel: Callable[[OpOverload, Kernel], None],
) -> None:
    def other_strides(x: torch.Tensor, *args: Any) -> torch.Tensor:
        return torch.empty_strided(x.shape, (9, 1), dtype=x.dtype, device="meta")

    fake_kernel(aten.cumsum.default, other_strides)
    assert said_of(scan, torch.rand(1, 4)) == []
    assert said_of(scan, torch.rand(4, 0)) == []
    assert len(said_of(scan, torch.rand(2, 4))) == 1
