"""The reports of compute-sanitizer become a note that names the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.sanitizer import PROGRAM, kernel_at_fault

ILLEGAL = "forward | CUDA error: an illegal memory access was encountered"
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at triton_per_fused_sin_sum_0+0x2020 in czvahzso3.py:36
=========     by thread (0,0,0) in block (8,0,0)
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at triton_red_fused_sum_1+0x2d0 in cabc.py:21
=========     and Read access at triton_red_fused_sum_1+0x330 in cabc.py:24 [96 hazards]
"""


def installed(folder: Path, prints: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that prints a report, and a repro for it."""
    program = folder / PROGRAM
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    repro = folder / "repro.py"
    repro.write_text("")
    return repro


@pytest.mark.parametrize(
    ("report", "failure", "note"),
    [
        (
            MEMCHECK,
            Outcome(Kind.EXCEPTION, "forward", ILLEGAL),
            "compute-sanitizer --tool memcheck: Invalid __global__ read of size 4 bytes in the "
            "kernel triton_per_fused_sin_sum_0 (czvahzso3.py:36)",
        ),
        (
            RACECHECK,
            Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 3, in call 4"),
            "compute-sanitizer --tool racecheck: Race reported between Write access in the kernel "
            "triton_red_fused_sum_1 (cabc.py:21)",
        ),
        ("========= ERROR SUMMARY: 0 errors\n", Outcome(Kind.EXCEPTION, "forward", ILLEGAL), ""),
        (MEMCHECK, Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 3"), ""),
    ],
)
def test_a_report_names_the_kernel_at_fault(
    report: str, failure: Outcome, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repro = installed(tmp_path, report, monkeypatch)
    assert kernel_at_fault(repro, failure, 30.0) == note


def test_without_the_program_there_is_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    failure = Outcome(Kind.EXCEPTION, "forward", ILLEGAL)
    assert kernel_at_fault(tmp_path / "repro.py", failure, 30.0) == ""
