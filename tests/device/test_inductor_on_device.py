"""Tests units of inductor on an NVIDIA GPU, where it writes Triton. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import config, metrics

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

FAMILIES = ("pregrad", "decompose", "joint", "partition", "postgrad", "config", "lower", "fuse")


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Call a matrix product, an activation, softmax, a normalisation and a reduction."""
    y = (x @ weight).relu()
    z = torch.nn.functional.gelu(y) + torch.softmax(y, -1)
    return torch.nn.functional.layer_norm(z, (16,)).sum(-1)


def run(function: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the result and the gradients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator).cuda().requires_grad_()
    weight = torch.randn(16, 16, generator=generator).cuda().requires_grad_()
    out = function(x, weight)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (x, weight))]


def compiled_under(*off: str) -> tuple[list[torch.Tensor], list[Decision], int]:
    """Return the results, the decisions, and the number of kernels."""
    torch._dynamo.reset()
    metrics.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        results = run(torch.compile(block))
        return results, gate.decisions, metrics.generated_kernel_count


def assert_right(results: list[torch.Tensor]) -> None:
    for result, eager in zip(results, run(block), strict=True):
        torch.testing.assert_close(result, eager, rtol=1e-3, atol=1e-3)


def test_every_family_of_units_is_asked_for_triton() -> None:
    results, decisions, kernels = compiled_under()
    assert_right(results)
    assert {d.unit.partition(".")[0] for d in decisions} >= set(FAMILIES)
    assert kernels > 0


def test_with_everything_off_no_triton_is_written() -> None:
    results, decisions, kernels = compiled_under("all")
    assert_right(results)
    assert not any(d.allowed for d in decisions)
    assert kernels == 0


def test_without_fusion_there_are_more_kernels() -> None:
    fused = compiled_under()[2]
    results, _, kernels = compiled_under("fuse.vertical", "fuse.horizontal")
    assert_right(results)
    assert kernels > fused


@pytest.mark.parametrize("family", FAMILIES)
def test_the_result_is_right_without_a_family(family: str) -> None:
    results, decisions, _ = compiled_under(family)
    assert_right(results)
    assert not any(d.allowed for d in decisions if d.unit.startswith(f"{family}."))


def test_a_wrong_relu_in_triton_disappears_with_its_lowering_off() -> None:
    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    x = torch.arange(-4.0, 4.0, device="cuda")
    with config.patch({"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        for off, right in (([], False), (["lower.aten.relu.default"], True)):
            torch._dynamo.reset()
            with inductor.switched(Toggles.parse(off), EventLog(None)):
                assert torch.allclose(torch.compile(relu)(x), relu(x)) is right


def row_sums(x: torch.Tensor, factor: int) -> torch.Tensor:
    return (x * factor).sum(-1)


def negated(x: torch.Tensor, factor: int) -> torch.Tensor:
    return (x * factor).neg()


@pytest.mark.parametrize(
    ("unit", "function", "size"),
    [("codegen.persistent_reduction", row_sums, 64), ("codegen.autotune", negated, 1 << 17)],
)
def test_a_decision_about_a_triton_kernel_is_asked_and_taken(
    unit: str, function: Callable[[torch.Tensor, int], torch.Tensor], size: int
) -> None:
    x = torch.ones(4, size, device="cuda")
    for factor, off in ((2, []), (3, [unit])):  # a process loads equal kernels once
        torch._dynamo.reset()
        with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
            actual = torch.compile(function, dynamic=False)(x, factor)
            torch.testing.assert_close(actual, function(x, factor))
            asked = [d.allowed for d in gate.decisions if d.unit == unit]
        assert asked == [not off]
