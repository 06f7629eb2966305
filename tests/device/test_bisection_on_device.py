"""Bisects faults planted in compiles for a GPU, with the command. Skipped without a GPU.

pytest tests/device
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from device_bisection import LOWERING, TANH, WRONG, bisected, exit_statuses

from tcdebug.minifier.processes.job import FORKED_BEFORE_CUDA, REPLAYED
from tcdebug.supervision.script_search import WHOLE_SCRIPTS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

ASSEMBLY = """
import torch
from torch._inductor.codegen import triton

def tanh(x):
    return (
        f"tl.inline_asm_elementwise('ASSEMBLY', '=f,f', [{x}.to(tl.float32)], "
        "dtype=tl.float32, is_pure=False, pack=1)"
    )

triton.TritonOverrides.tanh = staticmethod(tanh)
"""
"""Replaces the Triton code of tanh by inline assembly."""

TEXT = """
import torch
from torch._inductor.codegen import triton
from torch._inductor.virtualized import V

def tanh(x):
    TEXT

triton.TritonOverrides.tanh = staticmethod(tanh)
"""
"""Replaces the Triton code of tanh."""

NO_MEMORY = """
import torch
from torch._inductor import lowering

@torch.library.custom_op("planted::tanh", mutates_args=())
def tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(1 << 42, device=x.device)[: x.numel()].view(x.shape)

@tanh.register_fake
def _(x):
    return torch.empty_like(x)

lowering.register_lowering(torch.ops.aten.tanh.default, type_promotion_kind=None)(
    lowering.fallback_handler(torch.ops.planted.tanh.default))
"""

PERSISTENT = """
import torch
from torch._inductor.codegen.triton import TritonKernel
right = TritonKernel.codegen_kernel

def codegen_kernel(self, name=None):
    text = right(self, name)
    return text.replace("tl.sum(", "1.5 * tl.sum(") if self.persistent_reduction else text

TritonKernel.codegen_kernel = codegen_kernel
"""
"""Makes the sums of persistent reductions too large."""

AUTOTUNE = """
import torch
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

def benchmark_all_configs(self, *args, **kwargs):
    raise RuntimeError("planted in the choice of a configuration")

CachingAutotuner.benchmark_all_configs = benchmark_all_configs
"""

PTXAS = """
import os
import torch
from torch._inductor.runtime import triton_heuristics
right = triton_heuristics.triton.compile

def compile_kernel(*args, **kwargs):
    if "DISABLE_PTXAS_OPT" not in os.environ:
        raise RuntimeError("planted in ptxas")
    return right(*args, **kwargs)

triton_heuristics.triton.compile = compile_kernel
"""
"""Makes Triton's compile fail unless ptxas runs without optimisations."""

BLOCK_SIZE = """
import torch
from torch._inductor.runtime import triton_heuristics
right = triton_heuristics.triton.compile

def compile_kernel(*args, **kwargs):
    if kwargs["options"]["num_warps"] > 1:
        raise RuntimeError("planted in the choice of blocks")
    return right(*args, **kwargs)

triton_heuristics.triton.compile = compile_kernel
"""

TILING = """
import torch
from torch._inductor.codegen.triton import TritonKernel
right = TritonKernel.codegen_kernel

def codegen_kernel(self, name=None):
    text = right(self, name)
    return text.replace("tl.load(", "1.5 * tl.load(") if "YBLOCK" in text else text

TritonKernel.codegen_kernel = codegen_kernel
"""
"""Makes kernels with two-dimensional tiles read wrong values."""

TRANSPOSED = """
def f(x, y):
    return (x.t() + y).sin() * 2

x, y = torch.randn(256, 512, device="cuda"), torch.randn(512, 256, device="cuda")
got = torch.compile(f)(x, y)
raise SystemExit(0 if torch.allclose(got, f(x, y), rtol=1e-3, atol=1e-3) else 1)
"""

RUN = """
def f(x):
    return (x.sin().tanh() * 2).sum(-1)

x = torch.randn(16, WIDTH, device="DEVICE")
got = torch.compile(f)(x)
raise SystemExit(0 if torch.allclose(got, f(x), rtol=1e-3, atol=1e-3) else 1)
"""

TRAINING = """
class Squash(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x)  # its gradient is cos

model = torch.nn.Sequential(torch.nn.Linear(8, 16), Squash(), torch.nn.Linear(16, 4)).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.compile(model)(torch.randn(6, 8, device="cuda")).square().mean()
loss.backward()
optimiser.step()
torch.cuda.synchronize()
"""

MADE_BY_TENSOR = """
def function(x):
    return torch.tanh(x * 2).sum()
x = torch.tensor([0.1, 0.2, 0.3, 0.4], device="DEVICE", requires_grad=True)  # initialises CUDA
(expected,) = torch.autograd.grad(function(x), x)
(found,) = torch.autograd.grad(torch.compile(function)(x), x)
torch.testing.assert_close(found, expected)
"""
PINNED = """
def function(x):
    return torch.tanh(x * 2).sum()
x = torch.linspace(0.1, 0.4, 4PINNING.to("DEVICE", non_blocking=True)
torch.testing.assert_close(torch.compile(function)(x), function(x))
"""
TWO_GRAPHS = """
def f(x):
    y = x.cos() + 1
    torch._dynamo.graph_break()
    return (y.exp().tanh() * 3).sum(-1)

x = torch.randn(16, 16, device="cuda")
raise SystemExit(0 if torch.allclose(torch.compile(f)(x), f(x), rtol=1e-3, atol=1e-3) else 1)
"""

KEPT_OUTPUTS = """
import torch
replayed = torch.compile(lambda x: x.sin() * 2, mode="reduce-overhead")
kept = [replayed(torch.full((64,), float(step), device="cuda")) for step in range(5)]
print(sum(value.sum() for value in kept).item())
"""

BUFFERS = """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(4, device="cuda"))
        self.weight = torch.nn.Parameter(torch.linspace(0.1, 0.4, 4, device="cuda"))

    def forward(self, x):
        self.steps.add_(0.25)
        return torch.tanh(x * self.weight) + self.steps

def run(compiled):
    model = Scaled()
    step = torch.compile(model, mode="reduce-overhead") if compiled else model
    inputs = [torch.full((3, 4), 1.0 + k, device="cuda") for k in range(4)]
    with torch.no_grad():
        return torch.stack([step(x).clone() for x in inputs]), model.steps

torch.testing.assert_close(run(True), run(False))
"""
"""Calls a model with a buffer that each call updates, in replays of CUDA graphs."""

BIT = (
    "{ .reg .u64 t; .reg .pred p; mov.u64 t, %globaltimer; shr.u64 t, t, 20; and.b64 t, t, 1; "
    "setp.eq.u64 p, t, 0; selp.f32 $0, 0f3F800000, 0f00000000, p; }"
)
"""Return 1 or 0, from a bit of the clock that changes about every millisecond."""
MISALIGNED = (
    "{ .shared .align 8 .b8 s[64]; .reg .u32 p; .reg .u32 q; mov.u32 q, %laneid; "
    "shr.u32 q, q, 5; mov.u32 p, s; add.u32 p, p, q; add.u32 p, p, 1; ld.shared.f32 $0, [p]; }"
)


def on_gpu(plant: str, run: str = RUN, width: int = 16) -> str:
    return plant + run.replace("DEVICE", "cuda").replace("WIDTH", str(width))


def doubled(text: str) -> str:
    """Return the text escaped for an f-string."""
    return text.replace("{", "{{").replace("}", "}}")


def assembly(text: str) -> str:
    return ASSEMBLY.replace("ASSEMBLY", doubled(text))


PINNED_BEFORE = (
    "candidates on a GPU run the whole script, each in a fresh process: "
    "CUDA's driver was initialised before, such as by a tensor in pinned memory"
)
SOMETIMES = (
    f"bit = f\"tl.inline_asm_elementwise('{doubled(BIT)}', '=f,f', "
    '[{x}.to(tl.float32)], dtype=tl.float32, is_pure=False, pack=1)"\n'
    '    return f"tl.where({bit} > 0.5, 0.5, libdevice.tanh({x}))"'
)


@dataclass(frozen=True)
class Planted:
    """A script with a planted fault, and the expected result of its bisection."""

    script: str
    signature: str
    unit: str = TANH
    nodes: int = 1
    spare: int = 0
    """The nodes that may remain besides, since a fault that shows sometimes may be missed once."""
    notes: tuple[str, ...] = (FORKED_BEFORE_CUDA,)
    """Of these, one says how candidates ran: which one depends on chance if the fault does."""
    arguments: tuple[str, ...] = ()
    """Arguments of the command."""


SCRIPTS = {
    "late": Planted(
        on_gpu("import torch\ntorch.cuda.init()\n" + WRONG),
        "forward | wrong value", notes=(REPLAYED,),
    ),
    "kept outputs": Planted(
        KEPT_OUTPUTS, "script | RuntimeError | ", "cudagraphs", nodes=0, notes=(WHOLE_SCRIPTS,)
    ),
    "hang": Planted(on_gpu(assembly("{ L: bra L; mov.f32 $0, $1; }")), "forward | hang"),
    "exception": Planted(
        on_gpu(LOWERING.replace("TEXT", 'raise RuntimeError("planted")')),
        "compile | LoweringException | ",
    ),
    "wrong": Planted(on_gpu(WRONG), "forward | wrong value", arguments=("-j", "3")),
    "nan": Planted(
        on_gpu(LOWERING.replace("TEXT", "return lowering.lowerings[aten.log.default](x)")),
        "forward | wrong nan",
    ),
    "race": Planted(
        on_gpu(TEXT.replace("TEXT", SOMETIMES)), "forward | wrong value",
        spare=2, notes=(FORKED_BEFORE_CUDA, REPLAYED),
    ),
    "illegal": Planted(
        on_gpu(assembly("{ .reg .b64 p; mov.b64 p, 16; ld.global.f32 $0, [p]; }")),
        "forward | CUDA error: an illegal memory access was encountered",
    ),
    "misaligned": Planted(
        on_gpu(assembly(MISALIGNED)), "forward | CUDA error: misaligned address"
    ),
    "launch": Planted(
        on_gpu(assembly("trap; mov.f32 $0, $1;")),
        "forward | CUDA error: unspecified launch failure",
    ),
    "assert": Planted(
        on_gpu(
            TEXT.replace(
                "TEXT",
                "V.kernel.compute.writeline(f\"tl.device_assert({x} > 1e30, 'planted')\")\n"
                '    return f"libdevice.tanh({x})"',
            )
        ),
        "forward | CUDA error: device-side assert triggered",
    ),
    "memory": Planted(on_gpu(NO_MEMORY), "forward | CUDA out of memory"),
    "backward": Planted(
        on_gpu(WRONG.replace("tanh", "cos"), TRAINING),
        "backward | wrong value", "lower.aten.cos.default",
    ),
    "inside of torch.tensor": Planted(on_gpu(WRONG, MADE_BY_TENSOR), "forward | wrong value"),
    "pinned": Planted(
        on_gpu(WRONG, PINNED.replace("PINNING", ").pin_memory()")), "forward | wrong value"
    ),
    "created in pinned memory": Planted(
        on_gpu(WRONG, PINNED.replace("PINNING", ", pin_memory=True)")),
        "script | AssertionError | ", nodes=0, notes=(PINNED_BEFORE,),
    ),
    "buffers": Planted(on_gpu(WRONG, BUFFERS), "forward | wrong value"),
    "second graph": Planted(on_gpu(WRONG, TWO_GRAPHS), "forward | wrong value"),
    "persistent": Planted(
        on_gpu(PERSISTENT), "forward | wrong value", "codegen.persistent_reduction"
    ),
    "autotune": Planted(
        on_gpu(AUTOTUNE, width=1 << 15), "forward | RuntimeError | ", "codegen.autotune"
    ),
    "tiling": Planted(on_gpu(TILING, TRANSPOSED), "forward | wrong value", "codegen.tiling"),
    "block size": Planted(on_gpu(BLOCK_SIZE, width=1 << 15), "compile | ", "codegen.block_size"),
    "ptxas": Planted(on_gpu(PTXAS), "compile | ", "triton.ptxas"),
}  # fmt: skip


def processes_in(folder: Path) -> list[str]:
    """Return the commands that still run in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is not ours
            continue
    return found


@pytest.mark.timeout(500)  # several searches share the cores
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_planted_fault_is_named_with_a_repro(name: str, tmp_path: Path) -> None:
    planted = SCRIPTS[name]
    report = bisected(tmp_path, planted.script, *planted.arguments)
    assert report["failure"]["signature"].startswith(planted.signature), report
    assert [c["unit"] for c in report["culprits"]] == [planted.unit], report
    assert report["status"] == "confirmed", report
    assert 0 <= report["nodes_after"] - planted.nodes <= planted.spare, report
    assert set(planted.notes) & set(report["notes"]), report
    if name == "illegal" and shutil.which("compute-sanitizer"):
        (said,) = (n for n in report["notes"] if n.startswith("compute-sanitizer"))
        assert "Invalid __global__ read of size 4 bytes in the kernel triton_poi_fused_" in said
    if name == "hang":
        log = Path(report["run_dir"], "repro.log").read_text()
        assert "'what': 'a kernel does not end'" in log  # it did not wait for its time limit
    assert processes_in(tmp_path) == []
    assert exit_statuses(tmp_path, report) == [1, 0], report


def test_a_script_on_the_cpu_is_bisected_as_where_there_is_no_gpu(tmp_path: Path) -> None:
    text = WRONG + RUN.replace("DEVICE", "cpu").replace("WIDTH", "16")
    report = bisected(tmp_path, text + "\nassert not torch.cuda.is_initialized()\n")
    assert [c["unit"] for c in report["culprits"]] == [TANH], report
    assert (report["status"], report["nodes_after"]) == ("confirmed", 1), report
    assert report["notes"] == [f"the script passes with {TANH} off"], report


def test_replays_of_a_healthy_script_with_an_updated_buffer_do_not_fail(tmp_path: Path) -> None:
    report = bisected(tmp_path, "import torch\n" + BUFFERS)
    assert (report["status"], report["culprits"]) == ("no_failure", []), report
