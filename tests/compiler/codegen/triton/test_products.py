"""Templates of matrix products: their source and their machine code."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from planted_times import Planted, templates_win
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.triton.source import module_text
from tcdebug.compiler.runtime.cuda import products
from tcdebug.compiler.runtime.cuda.compile import (
    ALIGNED,
    DIVISIBLE,
    WIDE,
    compile_kernel,
    import_source,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

half = torch.bfloat16
Program = Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w + b)


TEXT = """\
@triton.jit
def triton_fused_mm_relu_1(arg0_1_in, arg1_1_in, arg2_1_in, relu_out, \
INDEX: tl.constexpr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, \
TOGETHER: tl.constexpr):
    # LINE of mm
    # LINE of relu
    program = tl.program_id(0).to(INDEX)
    ytile, xtile, program = library.beside(program, tl.cdiv(1000, YBLOCK), tl.cdiv(512, XBLOCK), \
TOGETHER)
    yindex = ytile * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    ymask = yindex < 1000
    i0 = yindex
    xindex = xtile * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    i1 = xindex
    KBLOCK: tl.constexpr = RBLOCK
    total = tl.zeros([YBLOCK, XBLOCK], tl.float32)
    for roffset in range(0, 768, RBLOCK):
        rindex = roffset + tl.arange(0, RBLOCK)[None, :].to(INDEX)
        r0 = rindex
        kindex = roffset + tl.arange(0, RBLOCK)[:, None].to(INDEX)
        k0 = kindex
        t1 = tl.load(arg0_1_in + tl.broadcast_to(i0*768 + r0, [YBLOCK, RBLOCK]), ymask, 0)
        o2 = tl.broadcast_to(t1, [YBLOCK, RBLOCK])
        t3 = tl.load(arg1_1_in + tl.broadcast_to(i1 + k0*512, [KBLOCK, XBLOCK]))
        o4 = tl.broadcast_to(t3, [KBLOCK, XBLOCK])
        total = tl.dot(o2, o4, total, out_dtype=tl.float32)
    t5 = total.to(tl.bfloat16)
    t6 = t5.to(tl.float32)
    t7 = tl.load(arg2_1_in + tl.broadcast_to(i1, [1, XBLOCK]))
    t8 = t7.to(tl.float32)
    t9 = t6 + t8
    t10 = t9.to(tl.bfloat16)
"""


def test_a_template_looks_like_other_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operands, then the product rounded as in eager, then the epilogue."""
    planted = Planted(templates_win)
    monkeypatch.setattr(products, "Bench", planted)
    inputs = ((1000, 768), (768, 512), (512,))
    source = triton_of(
        lambda: (mlp, tuple(cuda(*size, dtype=half) for size in inputs)),
        templates=True,
        cache_dir=tmp_path,
    )
    (kernel,) = source.kernels.values()
    text = kernel.call.source
    where = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line.split(" at ")[0].strip("# ") for line in where] == [
        "aten.mm.default",
        "aten.relu.default",
    ]
    assert all("test_products.py" in line for line in where)
    plain = text.replace(where[0], "    # LINE of mm").replace(where[1], "    # LINE of relu")
    assert plain.startswith(TEXT)
    assert plain.splitlines()[-1].startswith("    tl.store(relu_out + ")
    assert plain.splitlines()[-1].endswith(", ymask)")


MACHINE: dict[str, Program] = {
    "ragged": lambda: (mlp, tuple(cuda(*s, dtype=half) for s in ((99, 101), (101, 77), (77,)))),
    "one row": lambda: (
        lambda x, a, b: F.silu(x @ a) * (x @ b),
        tuple(cuda(*s, dtype=half) for s in ((1, 256), (256, 512), (256, 512))),
    ),
    "made operands": lambda: (
        lambda x, w: (x.to(half) @ w).float() * 2,
        (cuda(256, 256), cuda(256, 256, dtype=half)),
    ),
    "float32": lambda: (lambda x, w: (x @ w).relu(), (cuda(256, 100), cuda(100, 256))),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("ragged", "float32") else pytest.mark.slow)
        for name in MACHINE
    ],
)
def test_templates_compile_for_two_devices(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last form of each product, with its prologue if it has one."""
    planted = Planted(templates_win)
    monkeypatch.setattr(products, "Bench", planted)
    triton_of(MACHINE[name], templates=True, cache_dir=tmp_path)
    module = import_source(module_text(planted.kernels), tmp_path)
    assert len(planted.kernels) == (2 if name == "one row" else 1)
    variants = (ALIGNED | DIVISIBLE, WIDE) if name == "ragged" else (ALIGNED | DIVISIBLE,)
    for kernel in planted.kernels:
        function = getattr(module, kernel.call.kernel.name)
        for capability, shared in ((80, 163), (90, 227)):
            for variant in variants:
                binary = compile_kernel(function, kernel, variant, capability)
                assert binary.cubin.startswith(b"\x7fELF")
                assert binary.threads == 32 * kernel.tile.warps
                assert binary.shared <= shared * 1024
