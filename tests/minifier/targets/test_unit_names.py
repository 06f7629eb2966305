"""Names of units: those that exist, those that may exist, and suggestions for others."""

from __future__ import annotations

import pytest

from tcdebug.compiler.gate.toggles import BadToggle, Toggles
from tcdebug.compiler.registry import REGISTRY
from tcdebug.minifier.targets.unit_names import check_asked, check_toggles, check_units, unasked

NAMES = [
    "all", "fuse", "fuse.vertical", "lower.aten.sin", "lower.aten.sin.default", "decompose.aten",
    "runtime.cudagraphs", "cudagraphs", "layer.dynamo", "layer.cache", "dynamo.line",
    "autograd.decomposition.aten.silu.default", "postgrad.pattern_of_a_program",
    "config.max_fusion",
    "lower.quantized.add.default", "passes.of_a_program",
    "lower.of_a_program.op", "lower.attn.flash.default", "decompose.of_a_program.op.default",
]  # fmt: skip
NEAR = {
    "fuze.vertical": "fuse.vertical",
    "vertical": "fuse.vertical",
    "memry": "memory",
    "lower.aten.sinn.default": "lower.aten.sin.default",
    "lower.aten.sin.defult": "lower.aten.sin.default",
    "codegen.vectorise": "codegen.vectorize",
    "layer.dynamoo": "layer.dynamo",
    "Fuse": "fuse",
    "lower.atem.sin.default": "lower.aten.sin.default",
    "autograd.alias": "autograd.output_alias",
    "partition.mincut": "partition.min_cut",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{}", "{}:3", "only:{}"])
def test_a_name_that_a_unit_has_or_may_have_is_accepted(name: str, form: str) -> None:
    check_toggles(Toggles.parse([form.format(name)]))


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("form", ["{}", "{}:3", "only:{}"])
def test_a_misspelt_name_is_refused_and_the_nearest_is_suggested(name: str, form: str) -> None:
    with pytest.raises(BadToggle, match=f"no unit '{name}'; the nearest are: .*{NEAR[name]}"):
        check_toggles(Toggles.parse([form.format(name)]))


def test_once_a_program_has_registered_its_passes_other_names_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(REGISTRY.aten_passes, "passes.fast_gelu", lambda graph: False)
    check_units(["passes.fast_gelu"])
    with pytest.raises(BadToggle, match=r"the nearest are: passes\.fast_gelu"):
        check_units(["passes.fast_gulu"])


def test_a_name_that_only_a_compile_knows_must_be_asked_about() -> None:
    asked = ["joint.mul_softmax_pattern", "fuse.vertical"]
    check_asked(["joint.mul_softmax_pattern"], asked, [])
    check_asked(["fuse.horizontal", "layer.backend"], asked, [])  # they exist, asked for or not
    with pytest.raises(BadToggle, match=r"nearest are: joint\.mul_softmax_pattern"):
        check_asked(["joint.mul_softmax_patern"], asked, [])
    with pytest.raises(BadToggle):
        check_asked(["only:joint.mul_softmax_patern"], asked, [])


def test_a_culprit_that_another_toggle_keeps_from_being_reached_is_accepted() -> None:
    check_asked(["joint.first", "joint.second"], ["joint.first"], ["joint.first", "joint.second"])
    check_asked(["only:joint.first", "only:joint.second"], ["joint.first"], [])


def test_toggles_that_matched_nothing_in_a_run_are_named() -> None:
    toggles = Toggles.parse(["fuse", "postgrad.no_such", "lower.aten.sin.default"])
    assert list(unasked(toggles, ["lower.aten.cos.default"])) == ["postgrad.no_such"]
    operators = Toggles.parse(["lower.of_a_program.op", "lower.quantized.add.default"])
    assert list(unasked(operators, [])) == ["lower.of_a_program.op"]
    assert unasked(operators, ["lower.of_a_program.op.default"]) == {}


def test_an_operator_that_a_program_registers_exists_once_it_is_registered() -> None:
    with pytest.raises(BadToggle, match=r"no unit 'lower\.of_a_program\.op'"):
        check_units(["lower.of_a_program.op"])
