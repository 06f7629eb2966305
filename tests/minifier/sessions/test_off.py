"""Units that are off in a program which changes torch itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo  # must be imported before AOTAutograd's wrappers
from torch._functorch._aot_autograd import runtime_wrappers

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.sessions.off import switched


def first_half(x: torch.Tensor) -> torch.Tensor:
    return x[:2]


@pytest.mark.parametrize(
    ("units", "result"), [((), 0.0), (("autograd.output_alias",), 2.0), (("autograd",), 2.0)]
)
@pytest.mark.parametrize("before", [True, False])
def test_a_unit_is_off_for_what_the_program_puts_in_its_place(
    monkeypatch: pytest.MonkeyPatch, units: tuple[str, ...], result: float, *, before: bool
) -> None:
    original: Any = runtime_wrappers.gen_alias_from_base
    torch._dynamo.reset()
    x = torch.zeros(4)
    with switched(Toggles.parse(units)):
        if before:
            compiled = torch.compile(first_half, backend="aot_eager")
        recreated: Any = runtime_wrappers.gen_alias_from_base
        monkeypatch.setattr(
            runtime_wrappers,
            "gen_alias_from_base",
            lambda *args, **kw: recreated(*args, **kw).clone(),
        )
        if not before:
            compiled = torch.compile(first_half, backend="aot_eager")
        compiled(x).fill_(1.0)
    monkeypatch.setattr(runtime_wrappers, "gen_alias_from_base", original)
    assert x.sum().item() == result
