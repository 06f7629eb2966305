"""Units of inductor on an NVIDIA GPU, where it writes Triton: skipped where there is none.

pytest tests/device
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config, metrics

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.processes.job import FORKED_BEFORE_CUDA
from tcdebug.minifier.targets import inductor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

FAMILIES = ("pregrad", "decompose", "joint", "partition", "postgrad", "config", "lower", "fuse")
SCRIPT = """
import sys, torch
import torch._inductor.config as config
config.triton.inject_relu_bug_TESTING_ONLY = "accuracy"
def f(x):
    return (torch.relu(x.sin()) * 2).sum(-1)
x = torch.randn(16, 16, device="cuda")
got = torch.compile(f)(x)
sys.exit(0 if torch.allclose(got, f(x), rtol=1e-3, atol=1e-3) else 1)
"""

PLANTED = """
import torch
from torch._inductor.codegen import triton

ASSEMBLY = {
    "illegal": "{ .reg .b64 p; mov.b64 p, 16; ld.global.f32 $0, [p]; }",
    "misaligned": "{ .reg .b64 p; mov.b64 p, 268435457; ld.global.f32 $0, [p]; }",
    "launch": "trap; mov.f32 $0, $1;",
    "hang": "{ L: bra L; mov.f32 $0, $1; }",
}

def tanh(x):
    return (
        f"tl.inline_asm_elementwise('{ASSEMBLY['KIND']}', '=f,f', [{x}.to(tl.float32)], "
        "dtype=tl.float32, is_pure=False, pack=1)"
    )

triton.TritonOverrides.tanh = staticmethod(tanh)
x = torch.randn(16, 16, device="cuda")
torch.compile(lambda x: (x.sin().tanh() * 2).sum(-1))(x)
torch.cuda.synchronize()
"""
"""A script in which the Triton code of tanh is replaced by instructions that fail."""

DEVICE_ERRORS = [
    ("illegal", "forward | CUDA error: an illegal memory access was encountered"),
    ("misaligned", "forward | CUDA error: misaligned address"),
    ("launch", "forward | CUDA error: unspecified launch failure"),
    ("hang", "forward | hang"),
]


def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A bit of each kind: matrix product, activation, softmax, normalisation, reduction."""
    y = (x @ weight).relu()
    z = torch.nn.functional.gelu(y) + torch.softmax(y, -1)
    return torch.nn.functional.layer_norm(z, (16,)).sum(-1)


def run(function: Callable[..., Any]) -> list[torch.Tensor]:
    """The result and the gradients."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 16, generator=generator).cuda().requires_grad_()
    weight = torch.randn(16, 16, generator=generator).cuda().requires_grad_()
    out = function(x, weight)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (x, weight))]


def compiled_under(*off: str) -> tuple[list[torch.Tensor], list[Decision], int]:
    """Results, decisions, and how many kernels were written."""
    torch._dynamo.reset()
    metrics.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        results = run(torch.compile(block))
        return results, gate.decisions, metrics.generated_kernel_count


def assert_right(results: list[torch.Tensor]) -> None:
    for result, eager in zip(results, run(block), strict=True):
        torch.testing.assert_close(result, eager, rtol=1e-3, atol=1e-3)


def test_every_family_of_units_is_asked_for_triton() -> None:
    results, decisions, kernels = compiled_under()
    assert_right(results)
    assert {d.unit.partition(".")[0] for d in decisions} >= set(FAMILIES)
    assert kernels > 0


def test_with_everything_off_no_triton_is_written() -> None:
    results, decisions, kernels = compiled_under("all")
    assert_right(results)
    assert not any(d.allowed for d in decisions)
    assert kernels == 0


def test_without_fusion_there_are_more_kernels() -> None:
    fused = compiled_under()[2]
    results, _, kernels = compiled_under("fuse.vertical", "fuse.horizontal")
    assert_right(results)
    assert kernels > fused


@pytest.mark.parametrize("family", FAMILIES)
def test_the_result_is_right_without_a_family(family: str) -> None:
    results, decisions, _ = compiled_under(family)
    assert_right(results)
    assert not any(d.allowed for d in decisions if d.unit.startswith(f"{family}."))


def test_a_wrong_relu_of_triton_goes_with_its_lowering() -> None:
    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    x = torch.arange(-4.0, 4.0, device="cuda")
    with config.patch({"triton.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        for off, right in (([], False), (["lower.aten.relu.default"], True)):
            torch._dynamo.reset()
            with inductor.switched(Toggles.parse(off), EventLog(None)):
                assert torch.allclose(torch.compile(relu)(x), relu(x)) is right


def bisected(folder: Path, text: str, *arguments: str) -> Any:
    """The report of a bisection of a script."""
    (folder / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "tcdebug", "bisect", "--json", *arguments, "script.py"],
        cwd=folder,
        env={**os.environ, "TCDEBUG_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout)


def test_a_wrong_lowering_on_the_gpu_is_found_in_forked_candidates(tmp_path: Path) -> None:
    report = bisected(tmp_path, SCRIPT)
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.relu.default"], report
    assert report["status"] == "confirmed", report
    assert report["nodes_after"] == 1
    assert FORKED_BEFORE_CUDA in report["notes"]


@pytest.mark.parametrize(("kind", "signature"), DEVICE_ERRORS)
def test_an_error_of_the_device_is_found_in_forked_candidates(
    kind: str, signature: str, tmp_path: Path
) -> None:
    report = bisected(tmp_path, PLANTED.replace("KIND", kind), "--timeout", "20")
    assert report["failure"]["signature"] == signature, report
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.tanh.default"], report
    assert report["status"] == "confirmed", report
    assert report["nodes_after"] == 1
