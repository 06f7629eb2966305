"""Faults in decisions about Triton kernels vanish with their units off. Skipped without a GPU.

pytest tests/device
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch._inductor import config, ir
from torch._inductor.codegen import multi_kernel, triton_combo_kernel
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.runtime import triton_heuristics
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

Plant = Callable[[pytest.MonkeyPatch], None]
Tuner = triton_heuristics.CachingAutotuner


def planted(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("planted")


def raising(owner: Any, name: str, *, of_class: bool = False) -> Plant:
    """Return a function that fails if a decision has its usual result."""
    return lambda patch: patch.setattr(owner, name, classmethod(planted) if of_class else planted)


def rewriting(marks: str, before: str) -> Plant:
    """Make kernels whose source contains a marker compute something else."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = TritonKernel.codegen_kernel

        def codegen_kernel(self: Any, name: Any = None) -> Any:
            text = right(self, name)
            return text.replace(before, f"1.5 * {before}") if marks in text else text

        patch.setattr(TritonKernel, "codegen_kernel", codegen_kernel)

    return plant


def failing_compiles(fails: Callable[[Mapping[str, Any]], bool]) -> Plant:
    """Make Triton's compile fail with some options."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        triton: Any = triton_heuristics.triton
        right = triton.compile

        def compile_kernel(source: Any, target: Any, options: Any) -> Any:
            return planted() if fails(options) else right(source, target=target, options=options)

        patch.setattr(triton, "compile", compile_kernel)

    return plant


@dataclass(frozen=True)
class FaultyDecision:
    """A function with a fault that shows only if a decision has its usual result."""

    plant: Plant
    function: Callable[..., Any]
    sizes: tuple[tuple[int, ...], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


def summed(x: torch.Tensor, k: int) -> torch.Tensor:
    return (x * k).sum(-1)


def scaled(x: torch.Tensor, k: int) -> torch.Tensor:
    return (x * k).sin()


UNITS = {
    "codegen.tiling": FaultyDecision(
        rewriting("YBLOCK", "tl.load("),
        lambda x, y, k: (x.t() + y) * k,
        ((256, 512), (512, 256)),
    ),
    "codegen.split_reduction": FaultyDecision(
        raising(ir.Reduction, "create_multilayer", of_class=True), summed, ((1 << 20,),)
    ),
    "codegen.cooperative_reduction": FaultyDecision(
        rewriting("RSPLIT", "tl.sum("), summed, ((16, 1 << 16),),
        {"triton.force_cooperative_reductions": True, "split_reductions": False},
    ),
    "codegen.multi_kernel": FaultyDecision(
        raising(multi_kernel.MultiKernelCall, "run"), summed, ((64, 512),),
        {"triton.multi_kernel": 1},
    ),
    "codegen.combo_kernel": FaultyDecision(
        raising(triton_combo_kernel.ComboKernel, "codegen_kernel"),
        lambda x, y, k: (x.sin() * k, y.cos() * k),
        ((64,), (96,)),
        {"combo_kernels": True, "benchmark_combo_kernel": False},
    ),
    "codegen.block_pointer": FaultyDecision(
        rewriting("make_block_ptr", "tl.load("), scaled, ((4096,),), {"triton.use_block_ptr": True}
    ),
    "codegen.template": FaultyDecision(
        raising(AlgorithmSelectorCache, "do_autotuning"),
        lambda x, y, k: (x @ y) * k,
        ((256, 256), (256, 256)),
        {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN,TRITON"},
    ),
    "codegen.coordinate_descent": FaultyDecision(
        raising(Tuner, "_coordinate_descent_tuning"), scaled, ((1 << 16,),),
        {"coordinate_descent_tuning": True},
    ),
    "codegen.block_size": FaultyDecision(
        failing_compiles(lambda options: options["num_warps"] > 1), scaled, ((1 << 16,),)
    ),
    "triton.multiply_add": FaultyDecision(
        failing_compiles(lambda options: options.get("enable_fp_fusion", True)), scaled, ((64,),)
    ),
    "triton.llvm": FaultyDecision(
        failing_compiles(lambda _: "DISABLE_LLVM_OPT" not in os.environ), scaled, ((96,),)
    ),
    "triton.ptxas": FaultyDecision(
        failing_compiles(lambda _: "DISABLE_PTXAS_OPT" not in os.environ), scaled, ((160,),)
    ),
}  # fmt: skip


def is_right(faulty: FaultyDecision, factor: int, *off: str) -> tuple[bool, set[str]]:
    """Return whether the compiled function agrees with eager, and which units were consulted."""
    torch._dynamo.reset()
    inputs = [torch.randn(size, device="cuda") for size in faulty.sizes]
    expected = faulty.function(*inputs, factor)
    with (
        config.patch(dict(faulty.settings)),
        inductor.switched(Toggles.parse(off), EventLog(None)) as gate,
    ):
        try:
            actual = torch.compile(faulty.function, dynamic=False)(*inputs, factor)
            torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
        except (RuntimeError, AssertionError):
            return False, {d.unit for d in gate.decisions}
    return True, {d.unit for d in gate.decisions}


@pytest.mark.parametrize("unit", UNITS)
def test_a_fault_in_a_decision_about_a_kernel_disappears_with_its_unit_off(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = UNITS[unit]
    right, asked = is_right(faulty, 2)  # a process loads equal kernels once: factors, sizes differ
    assert right
    assert unit in asked
    faulty.plant(monkeypatch)
    assert not is_right(faulty, 3)[0]
    assert is_right(faulty, 5, unit)[0]
