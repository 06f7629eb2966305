"""Programs for a GPU are drawn, written and judged for one, on a machine without it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdebug.fuzz.campaign import ON_DEVICE
from tcdebug.fuzz.findings import Finding, covering
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.oracles import ProgramCall, loaded
from tcdebug.fuzz.runner import ProgramRunner
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.fuzz.worker import options_for, unfit
from tcdebug.minifier.processes.process import Limits
from tcdebug.strategies.devices import CPU, CUDA, INDICES, ON_CUDA, WITH_LARGE_TENSORS, Device
from tcdebug.strategies.gpu import GPU
from tcdebug.strategies.program import Argument, Program, ProgramStep, script
from tcdebug.strategies.programs import programs

LOST = "AcceleratorError: CUDA error: an illegal memory access was encountered"


@cache
def drawn(device: Device = ON_CUDA, count: int = 40, seeds: int = 2) -> tuple[Program, ...]:
    """Programs for a device, which are drawn on the CPU."""
    found: list[Program] = []
    options = options_for(FuzzJob("", "", "inductor", device=CUDA))
    for start in range(seeds):

        @seed(start)
        @settings(
            max_examples=count, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(programs(device=device, options=options))
        def draw(program: Program) -> None:
            found.append(program)

        draw()
    return tuple(found)


def sizes(program: Program) -> list[int]:
    """The numbers of elements of the inputs."""
    names = loaded(msgspec.structs.replace(program, device=CPU).source(), "program.py")
    return [value.numel() for value in names["inputs"]()]


def test_every_input_of_a_program_for_a_gpu_is_created_there() -> None:
    for program in drawn():
        made = [a.text for a in program.arguments if not a.text.startswith("a")]
        assert all("device=device" in text for text in made)
        assert program.source().startswith("device = 'cuda'\n") or not made
        assert all("torch.Generator(device)" in text for text in made if "Generator" in text)


def test_programs_for_a_gpu_run_on_the_cpu_too() -> None:
    found = [p for p in drawn() if not p.invalid]
    assert len(found) >= 0.95 * len(drawn())
    for program in found[:15]:
        ProgramCall.in_eager(msgspec.structs.replace(program, device=CPU), "program.py")


def test_programs_for_a_gpu_have_rows_longer_than_blocks_and_half_types() -> None:
    found = [p for p in drawn() if not p.invalid]
    assert max(max(sizes(p), default=0) for p in found) > 1 << 14
    text = "\n".join(p.source() for p in found)
    for part in ("bfloat16", "float16", "1025", "float8_e4m3fn", ".mT.contiguous()"):
        assert part in text, part
    assert len({row.name for row in GPU} & {op for p in found for op in p.ops}) > len(GPU) // 3


def test_some_programs_are_compiled_with_options_that_this_torch_has() -> None:
    known = set(torch._inductor.list_options())
    named = {name for p in drawn() for name, _ in p.options}
    assert len(named) > 2
    assert named <= known


def test_large_tensors_exceed_32_bits_in_the_second_call_only() -> None:
    found = [p for p in drawn(WITH_LARGE_TENSORS) if p.large]
    assert found
    assert all(str(INDICES[1]) not in p.source() for p in found)
    assert max(max(sizes(p), default=0) for p in found) <= 1 << 12


def program(device: str = CUDA, op: str = "sin") -> Program:
    """A program of one line."""
    made = "torch.ones((3,), device=device)" if device == CUDA else "torch.ones((3,))"
    return Program(
        (Argument("a0", made, made),), (ProgramStep("v0", f"torch.{op}(a0)", op),), ("v0",),
        device=device,
    )  # fmt: skip


def test_a_script_for_a_gpu_makes_each_call_three_times() -> None:
    text = script(program(), {"backend": "inductor", "options": {"combo_kernels": True}}, 1)
    assert "device = 'cuda'\n" in text
    assert "for make in (inputs, inputs, inputs,):" in text
    assert "torch.compile(Graph(), backend='inductor', options={'combo_kernels': True})" in text
    assert "for make in (inputs,):" in script(program(CPU), {"backend": "inductor"}, 1)


def test_a_finding_on_one_device_does_not_cover_the_same_failure_on_another() -> None:
    finding = Finding(
        "forward | wrong value", "wrong", "inductor", "", program(CPU), "2.13", ops=("sin",)
    )
    found = [
        covering([finding], "inductor", finding.signature, program(device)) is finding
        for device in (CPU, CUDA)
    ]
    assert found == [True, False]
    assert replaced(finding, program(CUDA)).slug != finding.slug


def replaced(finding: Finding, other: Program) -> Finding:
    return Finding(
        finding.signature, finding.kind, finding.backend, "", other, "2.13", ops=finding.ops
    )


def test_a_job_for_a_gpu_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert unfit(FuzzJob("", "", device=CUDA)) == "torch finds no GPU"
    assert unfit(FuzzJob("", "")) == ""


def test_a_worker_sees_the_gpus_only_if_its_programs_run_there() -> None:
    assert ON_DEVICE[CPU] == {"CUDA_VISIBLE_DEVICES": ""}
    assert ON_DEVICE[CUDA] == {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def counting(program: Program, notify: Callable[[str], None]) -> ProgramVerdict:
    """A judge whose second program ends with a failed kernel, and all later ones in its process."""
    STATE["judged"] += 1
    if STATE["judged"] > 1 and STATE["prepared"] == 1:
        return ProgramVerdict(Status.INVALID, message=LOST)
    return ProgramVerdict(Status.PASSED, message=str(STATE["judged"]))


STATE: dict[str, Any] = {"judged": 0, "prepared": 0}


def prepare() -> None:
    STATE["prepared"] += 1


def test_a_process_in_which_a_kernel_failed_judges_no_further_program(tmp_path: Path) -> None:
    runner = ProgramRunner(counting, Limits(20.0, 1 << 30), tmp_path / "log", prepare)
    try:
        messages = [runner(program()).message for _ in range(4)]
    finally:
        runner.close()
    assert messages == ["1", LOST, "1", LOST]
    assert STATE == {"judged": 0, "prepared": 0}, "only children judge"
