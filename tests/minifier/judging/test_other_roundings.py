"""A small result in float32 of a graph that rounds to half types."""

from __future__ import annotations

import torch
from captured import captured

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.replay import Results, compare

WEIGHT = torch.linspace(-0.9, 40.1, 64 * 64).view(64, 64).sin() / 6


def loss(x: torch.Tensor) -> torch.Tensor:
    y = x.bfloat16()
    for _ in range(6):
        y = torch.tanh(y @ WEIGHT.bfloat16())
    return (y.float() - 0.1).square().mean()


def fused_loss(x: torch.Tensor) -> torch.Tensor:
    """Computes in float32 between the products, as fused kernels do."""
    y = x.bfloat16().float()
    for _ in range(6):
        y = torch.tanh(y @ WEIGHT.bfloat16().float())
    return (y - 0.1).square().mean()


def compared(case: Case, factor: float) -> Outcome:
    """Compare what fused code computes, times a factor, where eager is exact by chance."""
    module = load(case, "<graph>")
    exact = float(loss_in_float64(case))
    eager = Results([torch.tensor(exact)], [], [])
    fused = fused_loss(case.values()[0]) * factor
    return compare(case, module, eager, Results([fused], [], []))


def loss_in_float64(case: Case) -> torch.Tensor:
    """The loss without any rounding."""
    y = case.values()[0].double()
    for _ in range(6):
        y = torch.tanh(y @ WEIGHT.double())
    return (y - 0.1).square().mean()


def test_a_loss_of_a_bfloat16_graph_may_be_further_from_float64_than_eager_happens_to_be() -> None:
    torch.manual_seed(0)
    case = captured(loss, torch.randn(4, 64))
    own = float(loss_in_float64(case))
    assert abs(float(fused_loss(case.values()[0])) - own) > 1e-3 * own  # out of tolerance
    assert compared(case, 1.0).kind is Kind.OK
    assert compared(case, 1.05).signature == "forward | wrong value"


def test_the_same_error_of_a_float32_graph_is_wrong() -> None:
    torch.manual_seed(0)
    case = captured(fused_in_float32, torch.randn(4, 64))
    assert compared(case, 1.003).signature == "forward | wrong value"


def fused_in_float32(x: torch.Tensor) -> torch.Tensor:
    """The loss of a graph that rounds nothing to bfloat16."""
    y = x
    for _ in range(6):
        y = torch.tanh(y @ WEIGHT)
    return (y - 0.1).square().mean()
