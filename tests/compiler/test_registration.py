"""Registered entries are used, become units, and are rejected if they are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from judge import compiled
from programs import f32
from torch import fx

import tcdebug
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.lower.interface.site import Site
from tcdebug.compiler.lower.interface.tensor import Tensor
from tcdebug.compiler.registration import BadRegistration
from tcdebug.compiler.registry import REGISTRY, read_through
from tcdebug.compiler.units import units

ran: list[str] = []


@torch.library.custom_op("tcdebug_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Two times x, in a function that no compiler can see into."""
    ran.append("eager")
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


TWICE = torch.ops.tcdebug_tests.twice.default


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores every table of the registry."""
    ran.clear()
    tables: tuple[dict[Any, Any], ...] = (
        REGISTRY.lowerings, REGISTRY.decompositions, REGISTRY.aten_passes, REGISTRY.pregrad_passes,
    )  # fmt: skip
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def test_a_custom_operator_without_a_registration_is_called() -> None:
    assert compiled(lambda x: twice(x) + 1)(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert ran == ["eager"]


def test_a_registered_lowering_lowers_a_custom_operator_to_loops() -> None:
    @tcdebug.register_lowering(TWICE)
    def lowering(site: Site, x: Tensor) -> Tensor:
        return site.tensor(lambda point: call("add", x.at(point), x.at(point)))

    assert compiled(lambda x: twice(x) + 1)(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert ran == []
    name = "lower.tcdebug_tests.twice.default"
    assert name in {unit.name for unit in units()}
    f = compiled(lambda x: twice(x) + 1, options={"off": [name]})
    assert f(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert ran == ["eager"]


def test_a_registered_decomposition_replaces_a_custom_operator() -> None:
    @tcdebug.register_decomposition(TWICE)
    def decomposition(x: torch.Tensor) -> torch.Tensor:
        return x + x

    assert compiled(lambda x: twice(x) + 1)(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert ran == []
    f = compiled(lambda x: twice(x) + 1, options={"off": ["decompose.tcdebug_tests.twice.default"]})
    assert f(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert ran == ["eager"]


@pytest.mark.parametrize("stage", ["passes", "pregrad"])
def test_a_registered_pass_runs_in_its_stage(stage: str) -> None:
    seen: list[list[str]] = []

    @tcdebug.register_pass(stage)
    def looking(graph: fx.Graph) -> bool:
        seen.append([str(n.target) for n in graph.nodes if n.op == "call_function"])
        return False

    compiled(lambda x: torch.sin(x))(f32(3))
    assert seen == [["aten.sin.default" if stage == "passes" else str(torch.sin)]]
    compiled(lambda x: torch.cos(x), options={"off": [f"{stage}.looking"]})(f32(3))
    assert len(seen) == 1


@pytest.mark.parametrize("wrong", [torch.ops.aten.sin, torch.sin, "aten.sin.default"])
def test_an_operator_without_an_overload_is_rejected(wrong: Any) -> None:
    for register in (tcdebug.register_lowering, tcdebug.register_decomposition):
        with pytest.raises(BadRegistration, match=r"such as torch\.ops\.aten\.sin\.default, not"):
            register(wrong)


def test_a_stage_without_passes_is_rejected() -> None:
    with pytest.raises(BadRegistration, match="run in passes and pregrad, not in 'lower'"):
        tcdebug.register_pass("lower")


def test_a_replaced_entry_keeps_its_position_and_a_new_one_comes_last() -> None:
    registered: dict[str, int] = {}
    table: Any = read_through({"a": 1, "b": 2}, registered)
    registered |= {"c": 4, "a": 3}
    assert list(table.items()) == [("a", 3), ("b", 2), ("c", 4)]
    with pytest.raises(TypeError):
        table["d"] = 5  # only the registry can be written to


# -- a bare graph -------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    """Has parameters, to which a traced graph refers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x).relu(), y + 1


def test_a_bare_graph_is_compiled_with_its_parameters_and_gradients() -> None:
    module = fx.symbolic_trace(Layer())
    x, y = f32(3, 4).requires_grad_(), torch.zeros(2)
    f = tcdebug.compile(module, [x, y])
    out, more = f(x, y)
    assert more.tolist() == [1.0, 1.0]
    torch.testing.assert_close(out, module(x, y)[0])
    out.sum().backward()
    compiled_grad, x.grad = x.grad, None
    module(x, y)[0].sum().backward()
    torch.testing.assert_close(compiled_grad, x.grad)


def test_a_bare_graph_with_the_wrong_inputs_is_rejected() -> None:
    module = fx.symbolic_trace(Layer())
    with pytest.raises(TypeError, match=r"the graph takes 2 inputs \(x, y\), not 1"):
        tcdebug.compile(module, [f32(3, 4)])
    with pytest.raises(TypeError, match=r"expected an fx\.GraphModule, not Layer"):
        tcdebug.compile(Layer(), [f32(3, 4)])
