"""Tensors that are detached inside a graph, and detached tensors that are returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import compiled

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "beside_a_view": lambda x: ((y := x.sum((-2,))).unsqueeze(-1), y.detach()),
    "beside_itself": lambda x: ((y := x.exp()), y.detach()),
    "read_and_returned": lambda x: ((d := x.exp().detach()), d.sin() * x),
    "twice": lambda x: x.exp().detach().detach() * x,
    "seen_otherwise": lambda x: ((y := x.exp()) * 2, y.detach().as_strided((2, 2), (1, 1)), y),
    "of_an_input": lambda x: (x.detach(), x * 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_detached_result_needs_no_gradient(name: str) -> None:
    def run(function: Callable[..., Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
        x = torch.linspace(-1, 1, 6).reshape(1, 2, 3).requires_grad_()
        results = function(x)
        listed = [results] if isinstance(results, torch.Tensor) else list(results)
        needed = [r.sum() for r in listed if r.requires_grad]
        (gradient,) = torch.autograd.grad(sum(needed, torch.zeros(())), x)
        return listed, gradient

    torch._dynamo.reset()
    made, gradient = run(compiled(PROGRAMS[name]))
    wanted, expected = run(PROGRAMS[name])
    assert [m.requires_grad for m in made] == [w.requires_grad for w in wanted]
    torch.testing.assert_close(made, wanted)
    torch.testing.assert_close(gradient, expected)
