"""tcdebug bisect on stock inductor, with bugs that scripts plant in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]
Script = Callable[[str], str]

MODEL = """
def model(x, y):
    a = torch.tanh(x)
    for _ in range(3):
        a = torch.cos(a) * y + torch.sigmoid(a)
    b = torch.sin(a - y).exp()
    return b.sum(-1), a

compiled = torch.compile(model)
compiled(torch.randn(5, 8), torch.randn(5, 8))
"""

INDUCTOR = """
import torch._inductor.config as config
from torch._inductor import lowering
from torch._inductor.virtualized import V
aten = torch.ops.aten
"""

WRONG_PASS = """
def takes_sub_for_add(graph):
    for node in graph.nodes:
        if node.target is aten.sub.Tensor:
            node.target = aten.add.Tensor

config.post_grad_custom_post_pass = takes_sub_for_add
"""

WRONG_LOWERING = """
@lowering.register_lowering(aten.tanh.default, type_promotion_kind=None)
def wrong_tanh(x):
    return lowering.lowerings[aten.sin.default](x)
"""

WRONG_TOGETHER = """
def marks(graph):
    for node in graph.nodes:
        if node.target is aten.sin.default:
            node.meta["marked"] = True

config.post_grad_custom_post_pass = marks
right = lowering.lowerings[aten.sin.default]

@lowering.register_lowering(aten.sin.default, type_promotion_kind=None)
def sin(x):
    marked = V.current_node.meta.get("marked")
    return lowering.lowerings[aten.cos.default](x) if marked else right(x)
"""


def test_the_report_says_what_could_not_be_patched(tcdebug: Command, script: Script) -> None:
    name = script("""
from torch._inductor.graph import GraphLowering
del GraphLowering.codegen_with_cpp_wrapper

def broken(graph, inputs):
    raise ValueError("broken")

torch.compile(lambda x: x.sin() + 1, backend=broken)(torch.ones(3))
""")
    done = tcdebug("minify", "--json", name)
    assert done.json["failure"]["kind"] == "exception"
    lost = "torch._inductor.graph.GraphLowering.codegen_with_cpp_wrapper is not patched: "
    assert [note.startswith(lost) for note in done.json["notes"]].count(True) == 1


@pytest.mark.slow
def test_two_faults_in_different_parts_of_inductor_are_both_found(
    tcdebug: Command, python: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(INDUCTOR + WRONG_PASS + WRONG_LOWERING + MODEL))
    assert done.status == 0
    faults = done.json["faults"]
    assert sorted((f["culprits"][0]["unit"], f["culprits"][0]["subject"]) for f in faults) == [
        ("lower.aten.tanh.default", "tanh"),
        ("postgrad.post_grad_custom_post_pass", "takes_sub_for_add"),
    ]
    assert [fault["nodes"] for fault in faults] == [1, 1]
    assert sorted(f["stages"]["stage"] for f in faults) == [
        "inductor_post_grad_graph (inference)",
        "ir_pre_fusion (inference)",
    ]
    for fault in faults:
        assert fault["confirmed"]
        assert "in model: " in fault["lines"][0]
        unit = fault["culprits"][0]["unit"]
        assert python(fault["repro"]).status == 1
        assert python(fault["repro"], f"--only={unit}").status == 1
        assert python(fault["repro"], f"--off={unit}").status == 0


@pytest.mark.slow
def test_units_that_are_wrong_only_together_are_a_pair(tcdebug: Command, script: Script) -> None:
    done = tcdebug("bisect", "--json", script(INDUCTOR + WRONG_TOGETHER + MODEL))
    assert done.status == 0
    (fault,) = done.json["faults"]
    pair = {fault["culprits"][0]["unit"], *fault["partners"]}
    assert pair == {"lower.aten.sin.default", "postgrad.post_grad_custom_post_pass"}
    assert fault["requires"] == []
    assert fault["stages"]["last_equal"] == "inductor_post_grad_graph (inference)"
    assert "+        cos = ops.cos(load)" in fault["stages"]["lines"]


@pytest.mark.slow
def test_a_script_that_only_fails_as_a_whole_has_units_of_inductor(
    tcdebug: Command, python: Command, script: Script
) -> None:
    name = script(
        INDUCTOR
        + """
seen = []
def third(graph):
    seen.append(graph)
    if len(seen) == 3:
        raise RuntimeError("the third graph is too much")
config.post_grad_custom_post_pass = third
for function in (torch.sin, torch.cos, torch.tan):
    torch.compile(lambda x, function=function: function(x) + 1, dynamic=False)(torch.ones(3))
"""
    )
    done = tcdebug("bisect", "--json", name)
    assert done.status == 0
    assert [c["unit"] for c in done.json["culprits"]] == ["postgrad.post_grad_custom_post_pass"]
    assert python(done.json["repro"]).status == 1
