"""Results are right whatever is switched off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, assert_same, compiled, copies, gradients
from property_settings import property_settings
from stages import capture
from torch.nn import functional as F

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Extern
from tcdebug.compiler.units import units


def network(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A function in which every family of units has something to do."""
    y = F.layer_norm(x.float() @ w * 1 + b, (8,))
    y = F.dropout(F.gelu(y), 0.5, training=False)
    z = torch.softmax(y.transpose(0, 1), 0) + y.mean(0).unsqueeze(1)
    return torch.cat([z, z.neg().neg()], 1).reshape(-1).tanh().sum() + z.amax(0) * z.var()


def arguments() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes: list[Sequence[int]] = [(6, 5), (5, 8), (8,)]
    return [torch.randn(s, generator=generator).requires_grad_() for s in sizes]


FAMILIES = [
    "pregrad", "decompose", "partition", "passes", "lower", "fuse", "codegen", "memory", "runtime",
]  # fmt: skip
NAMES = sorted(unit.name for unit in units())


def check(off: Sequence[str]) -> None:
    torch._dynamo.reset()
    limited = compiled(network, options={"off": list(off)})
    inputs = arguments()
    assert_same(gradients(limited, copies(inputs)), gradients(network, inputs), strides=False)


def test_units_cover_exactly_these_families() -> None:
    assert {name.partition(".")[0] for name in NAMES} == set(FAMILIES)


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_any_single_family_may_be_off(family: str) -> None:
    check([family])


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
def test_any_single_family_may_be_the_only_one_on(family: str) -> None:
    check([f for f in FAMILIES if f != family])


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=60))
@property_settings(6)
def test_any_set_of_units_may_be_off(off: set[str]) -> None:
    check(sorted(off))


@given(st.integers(0, 150))
@property_settings(4)
def test_any_prefix_of_the_decisions_may_be_allowed(count: int) -> None:
    check([f"all:{count}"])


def test_with_everything_off_all_calls_are_extern() -> None:
    captured = capture(network, *arguments(), toggles=Toggles.parse(["all"]))
    assert len(captured.schedules) == 1
    for schedule in captured.schedules:
        assert schedule.kernels() == []
        assert all(isinstance(step, Extern) for step in schedule.steps)
    assert not any(d.allowed for gate in captured.gates for d in gate.decisions)
    assert_as_eager(compiled(network, options={"off": ["all"]}), network, arguments())


def test_with_everything_off_no_compiler_is_needed() -> None:
    options = {"off": ["all"], "compiler": "no-such-compiler"}
    assert_as_eager(compiled(network, options=options), network, arguments())


def test_a_site_that_is_off_changes_only_that_decision() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() + 1).sin().sum(-1)

    x = torch.randn(4, 9)
    plain = capture(function, x).gates[0].decisions
    chosen = next(d for d in plain if d.unit == "lower.aten.sin.default")
    torch._dynamo.reset()
    captured = capture(function, x, toggles=Toggles.parse([f"site:{chosen.site}"]))
    refused = [d for d in captured.gates[0].decisions if not d.allowed]
    assert [(d.unit, d.subject) for d in refused] == [("lower.aten.sin.default", "sin")]
    (graph,) = captured.lowered
    assert [n.origin.op for n in graph.nodes if isinstance(n, Extern)] == ["aten.sin.default"]


def test_decisions_are_the_same_in_a_second_compile() -> None:
    first = capture(network, *arguments()).gates[0].decisions
    torch._dynamo.reset()
    second = capture(network, *arguments()).gates[0].decisions
    assert first == second
    assert len(first) > 40


def test_off_as_an_option_equals_off_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tcdebug.compiler.configuration.options import Options  # noqa: PLC0415 # the only use

    monkeypatch.setenv("TCDEBUG_OFF", "fuse,site:0a1b,all:7")
    by_environment = Options.from_env().toggles
    by_option = Options().updated(None, {"off": ["fuse", "site:0a1b", "all:7"]}).toggles
    assert by_environment == by_option
    assert Options().updated(None, {"off": "fuse,site:0a1b,all:7"}).toggles == by_option
