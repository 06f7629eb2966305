"""tcdebug values: the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from planted_scripts import WRONG_SIN

Command = Callable[..., Any]
Script = Callable[[str], str]

WRONG_LOWERING = """
from torch._inductor import lowering
sin, cos = torch.ops.aten.sin.default, torch.ops.aten.cos.default
lowering.register_lowering(sin, type_promotion_kind=None)(lambda x: lowering.lowerings[cos](x))
"""

RUN = """
def f(x, w):
    y = torch.softmax(x @ w, -1)
    return torch.sin(y + 1).sum(-1)

torch.manual_seed(0)
torch.compile(f, backend=BACKEND)(torch.randn(8, 8), torch.randn(8, 8))
"""
OFF = "--off=lower.aten.sin.default"


def found_with_and_without(tcdebug: Command, path: str) -> Any:
    """What the command finds. With the lowering off it finds nothing."""
    done = tcdebug("values", "--json", path)
    assert done.status == 0, done.stderr
    healthy = tcdebug("values", "--json", OFF, path)
    assert (healthy.status, healthy.json["found"]) == (4, None), healthy.stderr
    return done.json["found"]


def test_the_kernel_of_a_wrong_lowering_is_named_with_its_line(
    tcdebug: Command, script: Script
) -> None:
    found = found_with_and_without(tcdebug, script(WRONG_SIN + RUN.replace("BACKEND", "'tcdebug'")))
    assert any("torch.sin(y + 1)" in line for line in found["lines"])


@pytest.mark.slow
def test_a_unit_of_inductor_can_be_off_while_values_are_compared(
    tcdebug: Command, script: Script
) -> None:
    path = script(WRONG_LOWERING + RUN.replace("BACKEND", "'inductor'"))
    found = found_with_and_without(tcdebug, path)
    assert any("torch.sin(y + 1)" in line for line in found["lines"])


@pytest.mark.slow
def test_a_graph_that_a_script_gives_to_inductor_itself_is_compared(
    tcdebug: Command, script: Script
) -> None:
    text = """
from torch.fx.experimental.proxy_tensor import make_fx
x = torch.ones(8, 8)
graph = make_fx(lambda x: (torch.sin(x + 1).sum(-1),))(x)
artifact = torch._inductor.standalone_compile(
    graph, [x], dynamic_shapes="from_example_inputs", options={})
artifact.save(path="artifact.bin", format="binary")
torch._inductor.CompiledArtifact.load(path="artifact.bin", format="binary")(x)
"""
    assert found_with_and_without(tcdebug, script(WRONG_LOWERING + text)) is not None


PACKAGED = """
class Rows(torch.nn.Module):
    def forward(self, x):
        return torch.sin(torch.softmax(x, -1) + 1).sum(-1)

torch.manual_seed(0)
x, rows = torch.randn(8, 8), torch.export.Dim("rows", min=2)
program = torch.export.export(Rows(), (x,), dynamic_shapes={"x": {0: rows}})
package = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
package(x), package(torch.randn(3, 8))
"""


@pytest.mark.slow
def test_the_kernel_of_a_wrong_lowering_is_named_in_a_package(
    tcdebug: Command, script: Script
) -> None:
    found = found_with_and_without(tcdebug, script(WRONG_LOWERING + PACKAGED))
    assert found["kind"] == "kernel"
    assert any("torch.sin(torch.softmax" in line for line in found["lines"])


ONLY_AHEAD_OF_TIME = """
from torch._inductor import lowering
from torch._inductor.virtualized import V
right, cos = lowering.lowerings[torch.ops.aten.sin.default], torch.ops.aten.cos.default
lowering.register_lowering(torch.ops.aten.sin.default, type_promotion_kind=None)(
    lambda x: lowering.lowerings[cos](x) if V.graph.aot_mode else right(x))
"""


@pytest.mark.slow
def test_a_fault_of_aotinductor_alone_is_seen_in_the_results_of_a_package(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("values", "--json", script(ONLY_AHEAD_OF_TIME + PACKAGED))
    assert done.status == 0, done.stderr
    assert [done.json["found"][name] for name in ("kind", "name")] == ["graph", "aotinductor"]


def test_a_graph_of_another_backend_is_compared_as_a_whole(
    tcdebug: Command, script: Script
) -> None:
    text = "import torch\ntorch.compile(torch.sin, backend='aot_eager')(torch.ones(3))\n"
    done = tcdebug("values", script(text))
    assert done.status == 4, done.stderr
    lines = done.stdout.splitlines()[:2]
    assert lines == [
        "no graph differs from eager by more than rounding explains",
        "compared  the results of 1 calls",
    ]


def test_an_unknown_unit_is_refused(inside: Command, script: Script) -> None:
    done = inside("values", "--off=lower.aten.sin.defalt", script("pass\n"))
    assert done.status == 2
    assert "lower.aten.sin.default" in done.stderr
