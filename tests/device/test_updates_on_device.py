"""Kernels store into the inputs that a program updates. Skipped without a GPU.

pytest tests/device/test_updates_on_device.py
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "compiler" / "support"))

from externs import compiled_with_reasons
from updates import APART, ORDERED, SHARED, STATEMENTS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SEQUENCES = 4
"""The sequences of updates of each layout."""


@pytest.mark.parametrize("options", [{}, {"cudagraphs": True}], ids=["launched", "replayed"])
@pytest.mark.parametrize("name", [*APART, *SHARED])
def test_updates_in_any_order_agree_with_eager(name: str, options: dict[str, Any]) -> None:
    layout, statements = (APART[name], STATEMENTS) if name in APART else (SHARED[name], ORDERED)
    drawn = random.Random(name)  # the same sequences in every run
    for number in range(SEQUENCES):
        chosen = [statements[drawn.randrange(len(statements))] for _ in range(number + 1)]

        def function(x: torch.Tensor, y: torch.Tensor, chosen: Any = chosen) -> Any:
            for statement in chosen:
                statement(x, y)
            return (x * y.t()).sum(0), x + 1

        torch._dynamo.reset()
        with torch.device("cuda"):
            expected, given = layout(), layout()
        once = torch.compile(function, backend="tcdebug", options=options)
        for _ in range(3):  # CUDA graphs are captured in the second call and replayed in the third
            pairs = [*zip(once(*given), function(*expected), strict=True)]
            for got, wanted in (*pairs, *zip(given, expected, strict=True)):
                share = 1e-4 if wanted.dtype == torch.float32 else 4e-2
                atol = share * (1 + wanted.float().abs().amax().nan_to_num(posinf=0).item())
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=0, atol=atol)


def of_other_widths(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Threads hold other elements of bfloat16 than of float32."""
    old = (x + y).bfloat16()
    x.copy_(y * 3)
    return old


def of_tiles(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One store is contiguous along rows, the other along columns."""
    old = x.t() + y.t()
    x.copy_(y + 2)
    return old.contiguous()


def of_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    largest = (x + y).amax(-1, keepdim=True)
    x.copy_(y * 0.5)
    return largest


def of_small_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Several warps of a combo hold the same few elements."""
    old = (x[:7, 0] + y[:7, 0]).bfloat16()
    x[:7, 0].copy_(y[:7, 0] * 3)
    return old + y[:, :].sum(0)[:1] * 0


@pytest.mark.parametrize("size", [(2048, 2048), (501, 703), (9, 11), (3, 70_001)], ids=str)
@pytest.mark.parametrize("function", [of_other_widths, of_tiles, of_rows, of_small_tensors])
def test_all_threads_read_an_element_before_one_overwrites_it(
    function: Callable[..., Any], size: tuple[int, int]
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    once, left = compiled_with_reasons(function)
    y = torch.randint(-50, 50, size, device="cuda").float()
    for k in range(30):
        x, theirs = (torch.full(size, float(k), device="cuda") + y.flip(0) for _ in range(2))
        got, wanted = once(x, y), function(theirs, y)
        assert torch.equal(got, wanted)
        assert torch.equal(x, theirs)
    assert "aten.copy_.default" not in left


SIZES = ((64, 64), (64,), (256, 64), (1,), (64, 64))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("kind", ["Adam", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_a_step_of_an_optimizer_makes_no_copies(kind: str, mode: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    start = [torch.randn(size, device="cuda") for size in SIZES]
    given: dict[str, Any] = {"momentum": 0.9} if kind == "SGD" else {}

    def made() -> tuple[list[torch.Tensor], Any]:
        parameters = [torch.nn.Parameter(x.clone()) for x in start]
        for p, x in zip(parameters, start, strict=True):
            p.grad = x.sin()
        return parameters, getattr(torch.optim, kind)(parameters, lr=1e-2, **given).step

    (mine, step), (theirs, expected) = made(), made()
    once = torch.compile(step, backend="tcdebug", mode=mode)
    for _ in range(4):
        once()
        expected()
    for got, wanted in zip(mine, theirs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    with torch.profiler.profile() as profile:
        once()
    names = [event.key for event in profile.key_averages()]
    assert "aten::copy_" not in names
