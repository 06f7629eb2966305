"""Results in float32 of few values, whose error in eager may be small by chance."""

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


def cancels(x: torch.Tensor) -> torch.Tensor:
    return (x * 3.0).sum() - 3.0 * 40000.0


def test_a_sum_that_cancels_may_be_added_in_another_order() -> None:
    """Its error is a part of what was added, not of the small result."""
    torch.manual_seed(0)
    case = captured(cancels, torch.rand(80000))
    module = load(case, "<graph>")
    x = case.values()[0]
    eager = Results([torch.tensor(float(cancels(x.double())))], [], [])

    def compared_with(error: float) -> str:
        return compare(case, module, eager, Results([eager.outputs[0] + error], [], [])).signature

    assert abs(float(eager.outputs[0])) < 300
    assert compared_with(0.05) == ""
    assert compared_with(5.0) == "forward | wrong value"


def cancels_beside_another(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return cancels(x), x[:100] + 1.0


def test_the_value_that_is_reported_is_not_the_one_that_rounding_explains() -> None:
    torch.manual_seed(0)
    case = captured(cancels_beside_another, torch.rand(80000))
    module = load(case, "<graph>")
    x = case.values()[0]
    eager = Results([torch.tensor(float(cancels(x.double()))), x[:100] + 1.0], [], [])

    def compared_with(error: float, another: float) -> str:
        made = [eager.outputs[0] + error, eager.outputs[1] + another]
        return compare(case, module, eager, Results(made, [], [])).message.partition(",")[0]

    assert compared_with(0.05, 0.0) == ""
    assert compared_with(0.05, 0.5) == "output 1: 100 of 100 out of tolerance"
    assert compared_with(5.0, 0.5) == "output 0: 1 of 1 out of tolerance"


def sensitive(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sin()


def test_a_large_result_of_few_values_may_be_sensitive_to_rounding() -> None:
    """Eager's exp of 0 to 8 rounds correctly; that of another library is off by one unit."""
    case = captured(sensitive, torch.arange(9.0).repeat(100))
    module = load(case, "<graph>")
    exact = case.values()[0].double().exp()
    eager = Results([exact.float().double().sin().float()], [], [])
    unit = torch.finfo(torch.float32).eps

    def compared_with(error: float) -> str:
        made = (exact * (1 + error)).float().double().sin().float()
        return compare(case, module, eager, Results([made], [], [])).signature

    assert compared_with(unit) == ""
    assert compared_with(20 * unit) == "forward | wrong value"
