"""Independent kernels of a GPU run in one launch, which `fuse.combo` decides kernel by kernel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from stages import capture
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.verifier import InvalidGraph
from tcdebug.compiler.runtime.cuda.compile import ALIGNED, DIVISIBLE, compile_all, import_source
from tcdebug.compiler.schedule import combo_kernels
from tcdebug.compiler.schedule.combo_kernels import with_combo_kernels
from tcdebug.compiler.schedule.kernel import Kernel, Schedule
from tcdebug.compiler.schedule.verifier import verify_schedule

Tensors = list[torch.Tensor]
SIZES = ((64, 64), (64,), (64, 64), (3, 5))


def updates(
    parameters: Tensors, gradients: Tensors, momenta: Tensors, other: torch.Tensor
) -> Tensors:
    """A step of gradient descent with momentum, in which each tensor is independent, and a sum."""
    momenta = torch._foreach_add(torch._foreach_mul(momenta, 0.9), gradients)
    parameters = torch._foreach_add(parameters, momenta, alpha=-0.1)
    return [*parameters, *momenta, other.sum()]


def written(*off: str) -> TritonSource:
    def program() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        tensors = tuple(cuda(*size) for size in (*SIZES * 3, (50,)))
        return lambda *t: updates([*t[:4]], [*t[4:8]], [*t[8:12]], t[12]), tensors

    return triton_of(program, off=list(off))


@pytest.fixture(scope="module")
def source() -> TritonSource:
    return written()


def test_updates_of_a_list_are_one_launch_and_equal_sizes_share_code(source: TritonSource) -> None:
    combos = [k for k in source.kernels.values() if k.combines]
    assert [len(k.combines) for k in combos] == [4]
    assert len(source.kernels) == 2  # and the sum
    (combo,) = combos
    name = combo.call.kernel.name
    assert name.startswith("triton_combo_fused_")
    assert combo.call.source.count("chosen_0_0, ") == 3  # two kernels, and their common call
    assert combo.call.before[2:] == ("66", "1", "1")  # 32 programs twice, and 1 twice
    assert [call.combo.kernel.name for call in source.calls.values() if call.combo] == [name] * 4


def test_kernels_with_the_same_code_and_other_sizes_have_their_own_programs() -> None:
    """Without a mask, the code of a kernel is the same for all multiples of a tile."""
    sizes = ((128, 64), (256, 64), (128, 64), (64, 64))
    source = triton_of(
        lambda: (lambda *t: torch._foreach_mul([*t], 2), tuple(cuda(*size) for size in sizes))
    )
    (combo,) = source.kernels.values()
    assert len({part.call.code for part in source.parts.values()}) == 1
    assert combo.call.before[2:] == ("288", "1", "1")  # 64, 128, 64 and 32
    bounds = [line.strip() for line in combo.call.source.splitlines() if "if program" in line]
    assert bounds == ["if program < 128:", "if program < 256:"]


def test_a_kernel_that_computes_with_a_size_stays_alone() -> None:
    def program() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        rows = cuda(10, 4)
        torch._dynamo.mark_dynamic(rows, 0)
        tensors = rows, cuda(3), cuda(5), cuda(7)
        return lambda r, *t: [r.shape[0] * t[0], *(u + 1 for u in t[1:])], tensors

    source = triton_of(program)
    (combo,) = [k for k in source.kernels.values() if k.combines]
    assert len(combo.combines) == 2


def test_a_kernel_that_the_gate_denies_stays_alone(source: TritonSource) -> None:
    assert [bool(k.combines) for k in written("fuse.combo").kernels.values()] == [False] * 5
    gate = Gate()
    schedule = scheduled(gate)
    asked = [d for d in gate.decisions if d.unit == "fuse.combo"]
    assert [d.subject for d in asked] == [k.subject for k in schedule.kernels()]


def scheduled(gate: Gate) -> Schedule:
    """The schedule of two independent kernels of a CPU, combined as if it were a GPU."""
    torch._dynamo.reset()
    found = capture(lambda x, y: (x.sin().sum(0), y.cos().sum(0)), torch.ones(3, 4), torch.ones(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combo_kernels, "DEVICES", ("cpu",))
        return with_combo_kernels(found.schedules[0], gate)


def test_copies_into_inputs_run_after_the_kernels_of_a_combo() -> None:
    torch._dynamo.reset()

    def step(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
        for t in (x, y, z):
            t.mul_(0.5)

    tensors = [torch.ones(3, 4), torch.ones(5), torch.ones(3, 4)]
    off = Toggles.parse(["lower.aten.copy_.default"])
    found = capture(step, *tensors, toggles=off)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combo_kernels, "DEVICES", ("cpu",))
        combined = with_combo_kernels(found.schedules[0], Gate())
    verify_schedule(combined)
    steps = [s.combo if isinstance(s, Kernel) else s.origin.op for s in combined.steps]
    assert steps == ["cpp_combo_mul_0"] * 3 + ["aten.copy_.default"] * 3


def test_a_combo_whose_kernels_depend_on_each_other_is_refused() -> None:
    torch._dynamo.reset()
    found = capture(lambda x: (x.sum(0) / 3).exp().sum(), torch.ones(70, 4), toggles=None)
    schedule = found.schedules[0]
    steps = tuple(replace(kernel, combo="both") for kernel in schedule.kernels())
    if len(steps) < 2:
        pytest.skip("fused into one kernel")
    with pytest.raises(InvalidGraph, match="depends on"):
        verify_schedule(replace(schedule, steps=steps))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_combo_compiles_for_a_gpu(source: TritonSource, tmp_path: Path) -> None:
    module = import_source(source.text, tmp_path)
    built = compile_all(module, source.kernels, (ALIGNED | DIVISIBLE, 0), 90)
    warps = {kernel.tile.warps for kernel in source.kernels.values()}
    assert {future.result().threads for future in built.values()} == {32 * w for w in warps}
