"""Bisects scripts that define Triton kernels, with the command. Skipped without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from device_bisection import TANH, WRONG, bisected, exit_statuses

from tcdebug.minifier.processes.job import FORKED_BEFORE_CUDA

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

ADDITION = """
import triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    y = tl.load(y_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x + y, mask=at < count)

def add(x, y):
    out = torch.empty_like(x)
    count = out.numel()
    add_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, y, out, count, BLOCK=1024)
    return out

def f(x, y):
    z = add(x.cos(), y) * 2
    return (add(z, y).tanh() * 3).sum(-1)

x, y = torch.randn(64, 100, device="cuda"), torch.randn(64, 100, device="cuda")
torch.testing.assert_close(torch.compile(f)(x, y), f(x, y), rtol=1e-3, atol=1e-3)
"""

BROKEN_CALL = """
import torch
from torch._inductor import ir

def codegen(self, wrapper):
    raise RuntimeError("planted in the call of a kernel")

ir.UserDefinedTritonKernel.codegen = codegen
"""

AUTOTUNED = """
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
LIMIT = tl.constexpr(4.0)

@triton.jit
def clip(x, high):
    return tl.minimum(x, high)

@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=4),
        triton.Config({"BLOCK": 256}, num_warps=2),
    ],
    key=["count"],
)
@triton.jit
def scaled_kernel(x_ptr, out_ptr, count, scale, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, clip(x * scale, LIMIT), mask=at < count)

def scaled(x, scale):
    out = torch.empty_like(x)
    count = out.numel()
    scaled_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, out, count, scale)
    return out

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(96, 96)

    def forward(self, x):
        h = torch.nn.functional.layer_norm(scaled(self.linear(x), 1.5), (96,))
        return torch.tanh(h) + x

model = torch.nn.Sequential(*[Block() for _ in range(3)]).to(DEVICE)
compiled = torch.compile(model, dynamic=True)
with torch.no_grad():
    for rows in (32, 48):
        x = torch.randn(rows, 96, device=DEVICE)
        assert torch.allclose(compiled(x), model(x), atol=1e-3), "compiled output differs"
"""


@pytest.mark.timeout(500)  # several searches share the cores
@pytest.mark.parametrize(
    ("script", "signature", "unit", "nodes"),
    [
        (BROKEN_CALL + ADDITION, "compile | RuntimeError | ", "layer.backend", 2),
        (WRONG + AUTOTUNED, "forward | wrong value", TANH, 1),
    ],
    ids=["needed", "not needed, autotuned and dynamic"],
)
def test_a_graph_with_kernels_of_the_script_is_minimised(
    script: str, signature: str, unit: str, nodes: int, tmp_path: Path
) -> None:
    report = bisected(tmp_path, script)
    assert report["failure"]["signature"].startswith(signature), report
    assert [c["unit"] for c in report["culprits"]] == [unit], report
    assert (report["status"], report["nodes_after"]) == ("confirmed", nodes), report
    assert FORKED_BEFORE_CUDA in report["notes"], report
    assert exit_statuses(tmp_path, report) == [1, 0], report
