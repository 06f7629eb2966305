"""tcdebug bisect on scripts that AOTAutograd makes fail: its unit, or its first wrong stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]
Script = Callable[[str], str]

PIXELS = """
noise = torch.Generator().manual_seed(0)
pixels = torch.randint(0, 255, (1, 3, 7, 9), dtype=torch.uint8, generator=noise)

def doubled(x):
    return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")

torch.compile(doubled, backend="aot_eager")(pixels)
"""

CHANGED_RESULT = """
import torch._dynamo
from torch._functorch._aot_autograd.runtime_wrappers import RuntimeWrapper
original = RuntimeWrapper.post_compile

def post_compile(self, *args, **kwargs):
    made = original(self, *args, **kwargs)
    def call(args):
        return [value * 2 for value in made(args)]
    call._boxed_call = True
    return call

RuntimeWrapper.post_compile = post_compile
torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
def test_a_decomposition_of_the_autograd_key_is_named_and_its_repro_behaves_as_reported(
    tcdebug: Command, python: Command, script: Script, backend: str
) -> None:
    """Without a GPU, the backend cudagraphs runs the graphs of AOTAutograd in eager."""
    done = tcdebug("bisect", "--json", script(PIXELS.replace("aot_eager", backend)))
    assert done.status == 0
    assert done.json["layer"] == "layer.autograd"
    (fault,) = done.json["faults"]
    unit = "autograd.decomposition.aten.upsample_bilinear2d"
    assert [c["unit"] for c in fault["culprits"]] == [unit]
    assert fault["confirmed"]
    assert fault["passes"] == f"python repro.py --off={unit}"
    assert python(fault["repro"]).status == 1
    assert python(fault["repro"], f"--off={unit}").status == 0


NEAREST = """
import torch
def widened(x):
    return torch.nn.functional.interpolate(x, scale_factor=1.3, mode="nearest")
torch.compile(widened)(torch.tensor([[[[1.0, 2.0]]]]))
"""


@pytest.mark.slow
def test_a_formula_that_the_backend_applies_too_is_named_in_every_place(
    tcdebug: Command, python: Command, script: Script
) -> None:
    """Eager leaves the pixels of an axis as they are if its size stays."""
    done = tcdebug("bisect", "--script-seconds", "0", "--json", script(NEAREST))
    assert done.status == 0
    (fault,) = done.json["faults"]
    named = [
        "autograd.decomposition.aten.upsample_nearest2d",
        "decompose.aten.upsample_nearest2d.default",
        "lower.aten.upsample_nearest2d.default",
    ]
    assert [*(c["unit"] for c in fault["culprits"]), *fault["alternatives"]] == named
    assert fault["confirmed"]
    off = [f"--off={unit}" for unit in named]
    assert fault["passes"] == f"python repro.py {' '.join(off)}"
    assert python(fault["repro"], *off[:2]).status == 1
    assert python(fault["repro"], *off).status == 0


STRIDES = """
import torch
def copied(x):
    x.add_(1)
    return torch.as_strided_copy(x, (3,), (2,))
torch.compile(copied)(torch.arange(10)[::2])
"""


@pytest.mark.slow
def test_a_unit_of_aotautograd_is_confirmed_where_aotautograd_alone_fails_in_another_way(
    tcdebug: Command, python: Command, script: Script
) -> None:
    """The result of an update loses its strides. A backend then reads another element."""
    done = tcdebug("bisect", "--script-seconds", "0", "--json", script(STRIDES))
    (fault,) = done.json["faults"]
    named = ["autograd.functionalization.aten.add_.Tensor", "lower.aten.copy.default"]
    assert [*(c["unit"] for c in fault["culprits"]), *fault["alternatives"]] == named
    assert (done.status, fault["confirmed"]) == (0, True)
    assert not any("may be at fault" in note for note in done.json["notes"])
    off = [f"--off={unit}" for unit in named]
    assert [python(fault["repro"], *some).status for some in (off[:1], off[1:], off)] == [1, 1, 0]


@pytest.mark.slow
def test_the_first_stage_whose_values_differ_is_named_where_no_unit_is_at_fault(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(CHANGED_RESULT))
    assert done.status == 0
    (fault,) = done.json["faults"]
    assert [c["unit"] for c in fault["culprits"]] == ["layer.autograd"]
    stages = fault["stages"]
    assert (stages["stage"], stages["last_equal"]) == ("autograd.runtime", "autograd.partition")


SECOND_DERIVATIVE = """
import torch

@torch.compile
def f(x):
    return FUNCTION

x = torch.ones(2, requires_grad=True)
first, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
torch.autograd.grad(first.sum(), x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("function", ["x ** 3", "x.sigmoid()"])
def test_backward_of_aotautograd_is_named_where_a_script_needs_what_eager_records(
    tcdebug: Command, python: Command, script: Script, function: str
) -> None:
    """Without a backend, the second function fails in a different way."""
    path = script(SECOND_DERIVATIVE.replace("FUNCTION", function))
    done = tcdebug("bisect", "--script-seconds", "0", "--json", path)
    assert done.status == 0
    (fault,) = done.json["faults"]
    assert [c["unit"] for c in fault["culprits"]] == ["autograd.backward"]
    assert (done.json["layer"], fault["confirmed"]) == ("layer.autograd", True)
    assert fault["passes"] == "python repro.py --off=autograd.backward"
    assert python(fault["repro"]).status == 1
    assert python(fault["repro"], "--off=autograd.backward").status == 0
