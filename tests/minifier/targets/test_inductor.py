"""The units of stock inductor: every decision is asked about, and any can be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings
from torch._functorch._aot_autograd import graph_compile
from torch._inductor import config, lowering
from torch._inductor.codegen import wrapper
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.exc import InductorError
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor
from tcdebug.minifier.targets.inductor import fusion
from tcdebug.minifier.targets.inductor.settings import units

PROPERTY = property_settings(1)
"""An example compiles several kernels of inductor, one to two seconds each."""
FAMILIES = ("pregrad", "decompose", "joint", "partition", "postgrad", "config", "lower", "fuse",
            "codegen", "memory")  # fmt: skip


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """One of each kind: matrix product, activation, softmax, normalisation, reduction."""
    y = (x @ weight).relu()
    z = torch.nn.functional.gelu(y) + torch.softmax(y, -1)
    return torch.nn.functional.layer_norm(z, (16,)).sum(-1)


def run(function: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the result and the gradients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator).requires_grad_()
    weight = torch.randn(16, 16, generator=generator).requires_grad_()
    out = function(x, weight)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (x, weight))]


def compiled_under(*off: str) -> tuple[list[torch.Tensor], list[Decision]]:
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        return run(torch.compile(block)), gate.decisions


def assert_right(results: list[torch.Tensor]) -> None:
    for result, eager in zip(results, run(block), strict=True):
        torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-4)


def units_of(decisions: list[Decision], allowed: bool = True) -> set[str]:
    return {d.unit for d in decisions if d.allowed is allowed}


@cache
def with_everything_on() -> tuple[list[torch.Tensor], list[Decision]]:
    """Return the results and decisions of one compile, which several tests read."""
    return compiled_under()


def units_asked() -> list[str]:
    """Return the units of a compile with everything on."""
    return sorted(units_of(with_everything_on()[1]))


def test_every_family_of_units_is_asked() -> None:
    results, decisions = with_everything_on()
    assert_right(results)
    assert {d.unit.partition(".")[0] for d in decisions} == set(FAMILIES)
    assert {
        "decompose.aten.gelu.default",
        "joint.remove_noop_ops",
        "partition.recompute",
        "lower.aten.relu.default",
        "fuse.inline",
        "fuse.vertical",
        "codegen.vectorize",
        "config.inplace_buffers",
    } <= units_of(decisions)


def test_with_everything_off_no_kernel_is_written_and_the_result_is_right() -> None:
    results, decisions = compiled_under("all")
    assert_right(results)
    assert units_of(decisions) == set()
    assert "codegen.vectorize" not in units_of(decisions, allowed=False)


def test_decisions_are_the_same_in_every_compile() -> None:
    assert compiled_under()[1] == with_everything_on()[1]


def test_the_first_decisions_do_not_depend_on_the_rest() -> None:
    everything = with_everything_on()[1]
    for count in (1, 60):
        limited = compiled_under(f"all:{count}")[1]
        assert [d.site for d in limited[:count]] == [d.site for d in everything[:count]]
        assert [d.allowed for d in limited] == [True] * count + [False] * (len(limited) - count)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=() if name in ("decompose", "fuse") else pytest.mark.slow)
        for name in FAMILIES
    ],
)
def test_the_result_is_right_without_a_family_and_torch_is_unchanged_afterwards(
    family: str,
) -> None:
    lowerings, fallbacks = set(lowering.lowerings), set(lowering.fallbacks)
    settings_before = config.get_config_copy()
    results, decisions = compiled_under(family)
    assert_right(results)
    assert not any(unit.startswith(family + ".") for unit in units_of(decisions))
    assert set(lowering.lowerings) == lowerings
    assert set(lowering.fallbacks) == fallbacks
    assert config.get_config_copy() == settings_before


@PROPERTY
@given(st.data())
def test_the_result_is_right_whatever_units_are_off(data: st.DataObject) -> None:
    off = data.draw(st.sets(st.sampled_from(units_asked()), min_size=20))
    assert_right(compiled_under(*sorted(off))[0])


def test_a_saved_tensor_that_is_donated_wrongly_is_not_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_saved(inputs: Any, outputs: Any, gradients: Any, saved: list[Any]) -> list[int]:
        return list(range(len(saved)))  # including the result, which backward overwrites

    monkeypatch.setattr(graph_compile, "collect_fw_donated_buffer_idxs", all_saved)

    def result_after_backward(*off: str) -> tuple[float, list[Decision]]:
        torch._dynamo.reset()
        x = torch.zeros(8, requires_grad=True)
        with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
            y = torch.compile(torch.exp)(x)
            (y * 3.0).sum().backward()
        return y[0].item(), gate.decisions

    assert result_after_backward()[0] == 3.0
    value, decisions = result_after_backward("partition.donate")
    assert value == 1.0
    (refused,) = [d for d in decisions if not d.allowed]
    assert (refused.unit, refused.subject) == ("partition.donate", "saved tensors, 1")


def test_memory_that_would_be_reused_wrongly_is_not_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = wrapper.buffer_reuse_key

    def without_dtype(node: Any) -> tuple[Any, ...]:
        return tuple(part for part in key(node) if not isinstance(part, torch.dtype))

    def positive(x: torch.Tensor) -> torch.Tensor:
        return (x.relu() @ x > 0).int()

    monkeypatch.setattr(wrapper, "buffer_reuse_key", without_dtype)
    torch._dynamo.reset()
    with pytest.raises(InductorError), inductor.switched(Toggles(), EventLog(None)):
        torch.compile(positive)(torch.ones(4, 4))  # it reuses float32 for int32
    with inductor.switched(Toggles.parse(["memory.reuse"]), EventLog(None)) as gate:
        assert torch.compile(positive)(torch.ones(4, 4)).dtype is torch.int32
    (refused,) = [d for d in gate.decisions if not d.allowed]
    assert (refused.unit, refused.subject) == ("memory.reuse", "buf0 for buf2")


@pytest.mark.skipif(
    torch.ops.aten._efficientzerotensor.default not in lowering.fallbacks,
    reason="this torch has memory for such zeros",
)
@pytest.mark.parametrize("off", [["memory.zero_tensor"], []])
def test_zeros_without_memory_have_memory_with_the_unit_off(off: list[str]) -> None:
    """A kernel that reads such zeros reads address 0 (#190856)."""
    aten, graph = torch.ops.aten, torch.fx.Graph()
    x = graph.placeholder("x")
    zeros = graph.call_function(aten._efficientzerotensor.default, ([4],))
    graph.output((graph.call_function(aten.add.Tensor, (x, zeros)),))
    with FakeTensorMode() as mode:
        inputs = [mode.from_tensor(torch.ones(4))]
        for node in list(graph.nodes)[:3]:
            node.meta["val"] = torch.ones(4)
    module = torch.fx.GraphModule({}, graph)
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate, V.set_fake_mode(mode):
        compiled = compile_fx_inner(module, inputs)
    asked = [d for d in gate.decisions if d.unit == "memory.zero_tensor"]
    assert [d.allowed for d in asked] == [not off]
    if off:
        assert torch.equal(compiled([torch.ones(4)])[0], torch.ones(4))


def test_an_update_of_a_list_is_right_with_its_lowering_off_while_others_are_on() -> None:
    def update(tensors: list[torch.Tensor]) -> None:
        torch._foreach_add_(tensors, 1.0)

    tensors = [torch.ones(2), torch.ones(3)]
    torch._dynamo.reset()
    off = "lower.aten._foreach_add_.Scalar"
    with inductor.switched(Toggles.parse([off]), EventLog(None)) as gate:
        torch.compile(update)(tensors)
    assert [t.tolist() for t in tensors] == [[2.0, 2.0], [2.0, 2.0, 2.0]]
    assert units_of(gate.decisions, allowed=False) == {off}


def test_one_lowering_alone_writes_one_kernel() -> None:
    results, decisions = compiled_under("only:lower.aten.relu.default")
    assert_right(results)
    assert units_of(decisions) == {"lower.aten.relu.default"}


def test_a_patch_that_does_not_fit_removes_only_its_units_and_the_log_has_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fusion, "CAN_FUSE", replace(fusion.CAN_FUSE, takes=("left", "right")))
    torch._dynamo.reset()
    with inductor.switched(Toggles(), EventLog(tmp_path, artifacts=False)) as gate:
        assert_right(run(torch.compile(block)))
    asked = units_of(gate.decisions)
    assert "lower.aten.relu.default" in asked
    assert {unit for unit in asked if unit.startswith("fuse.")} == {"fuse.inline"}
    (path,) = tmp_path.glob("events*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert {e["unit"] for e in events if e["event"] == "decision"} == asked
    (said,) = [e["data"] for e in events if e["event"] == "fallback"]
    assert said["what"] == "torch._inductor.scheduler.Scheduler.can_fuse is not patched"
    without = "not left, right; without it: fuse.*, except fuse.inline, cannot be switched off"
    assert without in said["reason"]


def test_each_setting_of_a_script_is_a_unit() -> None:
    assert units() == {}
    with config.patch({"cpp.simdlen": 8, "max_autotune_pointwise": True}):
        assert units() == {"cpp.simdlen": None, "max_autotune_pointwise": False}
    # this one, unlike the first, changes no flag of g++ and hence no precompiled header
    with config.patch({"cpp.max_horizontal_fusion_size": 8}):
        assert "config.cpp.max_horizontal_fusion_size" in units_of(compiled_under()[1])


def test_an_option_is_a_unit_wherever_a_program_passes_it() -> None:
    negative = torch.tensor([-1.0])

    def nan() -> None:
        torch._dynamo.reset()
        torch.compile(torch.log, options={"nan_asserts": True})(negative)

    with inductor.switched(Toggles(), EventLog(None)) as gate, pytest.raises(AssertionError):
        nan()
    assert [d.subject for d in gate.decisions if d.unit == "option.nan_asserts"] == ["True"]
    with inductor.switched(Toggles.parse(["option.nan_asserts"]), EventLog(None)):
        nan()


def test_the_random_numbers_that_inductor_generates_are_a_unit() -> None:
    def drawn() -> torch.Tensor:
        torch._dynamo.reset()
        torch.manual_seed(7)
        return torch.compile(lambda x: torch.rand_like(x) + x)(torch.zeros(5))

    torch.manual_seed(7)
    eager = torch.rand_like(torch.zeros(5))
    with inductor.switched(Toggles(), EventLog(None)) as gate:
        assert not torch.equal(drawn(), eager)
        assert [d.unit for d in gate.decisions].count("config.fallback_random") == 1
    with inductor.switched(Toggles.parse(["config.fallback_random"]), EventLog(None)):
        assert torch.equal(drawn(), eager)


def test_an_option_of_a_custom_backend_is_a_unit() -> None:
    seen: list[dict[str, int]] = []

    def backend(
        graph: torch.fx.GraphModule, inputs: Any, *, options: dict[str, int]
    ) -> Callable[..., Any]:
        seen.append(options)
        return graph.forward

    with inductor.switched(Toggles.parse(["option.level"]), EventLog(None)) as gate:
        torch._dynamo.reset()
        torch.compile(torch.sin, backend=backend, options={"level": 3, "size": 4})(torch.ones(1))
    assert seen == [{"size": 4}]
    assert [d.unit for d in gate.decisions] == ["option.level", "option.size"]


def test_a_registered_pass_is_asked_about_by_its_place_and_name() -> None:
    called: list[int] = []

    def my_pass(graph: torch.fx.Graph) -> None:
        called.append(len(graph.nodes))

    with config.patch(post_grad_custom_post_pass=my_pass):
        decisions = compiled_under()[1]
        assert len(called) == 2
        asked = [d for d in decisions if d.unit == "postgrad.post_grad_custom_post_pass"]
        assert [d.subject for d in asked] == ["my_pass", "my_pass"]
        compiled_under("postgrad.post_grad_custom_post_pass")
        assert len(called) == 2


def test_what_aotinductor_needs_for_a_package_is_no_option_of_the_script() -> None:
    needed = {"aot_inductor.output_path": "x", "aot_inductor.package": True, "cpp_wrapper": True}
    given = {**needed, "max_fusion_size": 8}
    with inductor.switched(Toggles.parse(["all"]), EventLog(None)) as gate:
        assert inductor.allowed_options(gate, given) == needed
        assert inductor.allowed_options(gate, {"cpp_wrapper": True}) == {}


@torch.library.custom_op("tests_of_inductor::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize(("off", "value"), [((), 5.0), (("lower.tests_of_inductor.twice",), 4.0)])
def test_a_lowering_that_a_script_registers_for_its_operator_is_a_unit(
    off: tuple[str, ...], value: float
) -> None:
    operator = torch.ops.tests_of_inductor.twice.default

    def thrice(x: Any) -> Any:
        return lowering.lowerings[torch.ops.aten.mul.Tensor](x, 3)

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lowering.lowerings, operator, None)  # removed afterwards
        lowering.register_lowering(operator, type_promotion_kind=None)(thrice)
        with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
            result = torch.compile(lambda x: torch.ops.tests_of_inductor.twice(x) + 2)(
                torch.ones(1)
            )
    assert result.item() == value
    assert "lower.tests_of_inductor.twice.default" in {d.unit for d in gate.decisions}


def test_a_backend_built_on_aotautograd_has_its_decompositions_as_units() -> None:
    with inductor.switched(Toggles.parse(["decompose.aten.gelu"]), EventLog(None)) as gate:
        results = run(torch.compile(block, backend="aot_eager_decomp_partition"))
    assert_right(results)
    assert "decompose.aten.gelu.default" in units_of(gate.decisions, allowed=False)
    assert "decompose.aten._softmax.default" in units_of(gate.decisions)
    assert "partition.recompute" in units_of(gate.decisions)


def test_units_are_switched_off_after_their_names_were_listed() -> None:
    known = import_module("tcdebug.minifier.targets.inductor.units")
    assert any(unit.name == "fuse.vertical" for unit in known.units())
    x = torch.ones(4)
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(["fuse.vertical"]), EventLog(None)) as gate:
        torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1)(x), x.sin() + 1)
    assert gate.decisions
