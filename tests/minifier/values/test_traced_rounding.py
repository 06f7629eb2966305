"""Results that jump because a model decides by a rounded value."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.minifier.cases.case import from_captured
from tcdebug.minifier.judging.replay import Results
from tcdebug.minifier.values.traced_rounding import moved_by_rounding

X = torch.linspace(-1, 1, 128).to(torch.bfloat16)


def gate(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a sum in bfloat16 is at least the sum in float32: its rounding decides."""
    exact = x.exp().sum(0, dtype=torch.float32)
    return torch.where(x.exp().sum() >= exact, 5.0, -5.0), x * 2


@pytest.mark.parametrize(
    ("gate_times", "doubled_plus", "explained"),
    [
        (1.0, 0.0, True),
        (-1.0, 0.0, True),
        (7.0, 0.0, False),
        (torch.nan, 0.0, False),
        (-1.0, 1.0, False),
    ],
)
def test_a_jump_that_other_roundings_cause_is_told_from_a_wrong_result(
    gate_times: float, doubled_plus: float, explained: bool
) -> None:
    case = from_captured(make_fx(gate)(X), [X])
    decided, doubled = gate(X)
    actual = Results([decided * gate_times, doubled + doubled_plus], [], [X])
    assert moved_by_rounding(case, actual, "<graph 0>") is explained
