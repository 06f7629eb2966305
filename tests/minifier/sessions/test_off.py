"""Units that are off in a program which changes torch itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch._dynamo  # must be imported before AOTAutograd's wrappers
from torch._functorch._aot_autograd import runtime_wrappers
from torch._inductor import lowering
from torch._inductor.pattern_matcher import (
    CallFunction,
    KeywordArg,
    PatternMatcherPass,
    register_graph_pattern,
)
from torch.fx.experimental.proxy_tensor import make_fx

import tcdebug
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.sessions.off import program_switched, switched


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


def sine_and_more(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1.0


@pytest.mark.parametrize("unit", ["lower.aten.sin.default", "config.fallback_random", "autograd"])
def test_a_unit_is_off_for_a_program_that_first_compiles_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    """A patch of a setting ends in the thread in which it began."""
    torch._dynamo.reset()
    sine = torch.ops.aten.sin.default
    wrong: Any = lowering.lowerings[sine]
    with switched(Toggles.parse([unit])) as decisions:
        monkeypatch.setitem(lowering.lowerings, sine, lambda x: lowering.add(wrong(x), 1.0))
        compiled = torch.compile(sine_and_more)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(compiled, torch.zeros(3)).result()
    assert result.tolist() == [1.0 if unit.startswith("lower") else 2.0] * 3
    refused = {decision.unit for decision in decisions if not decision.allowed}
    assert ("lower.aten.sin.default" in refused) is unit.startswith("lower")


@pytest.mark.parametrize(
    ("off", "first"),
    [
        ("user.fusion.sine.sine_to_cosine", 0.0),
        ("user.fusion.sine", 0.0),
        ("user.fusion", 0.0),
        ("user.fusion.sine.another", 1.0),
        ("layer.cache.aotautograd", 1.0),
    ],
)
def test_a_pattern_of_a_gated_pass_is_off_where_the_caches_stay_on(off: str, first: float) -> None:
    patterns = PatternMatcherPass()
    sine = CallFunction(torch.ops.aten.sin.default, KeywordArg("x"))

    @register_graph_pattern(sine, pass_dict=patterns)  # type: ignore[untyped-decorator]
    def sine_to_cosine(match: Any, x: Any) -> None:
        match.output_node().target = torch.ops.aten.cos.default

    @tcdebug.gated("fusion.sine")
    def fuse(graph: torch.fx.Graph) -> None:
        patterns.apply(graph)

    module = make_fx(sine_and_more)(torch.zeros(3))
    with program_switched(Toggles.parse([off]), EventLog(None)):
        fuse(module.graph)
    module.recompile()
    assert module(torch.zeros(3))[0].item() == 1.0 + first
