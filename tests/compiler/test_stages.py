"""Eager, the loop IR after each stage, and the compiled kernels compute the same."""

from __future__ import annotations

import pytest
import torch
from judge import assert_as_eager, assert_same, compiled, copies
from programs import PROGRAMS, Program
from stages import INTERPRETED, Captured, recording_backend


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_every_stage_computes_what_eager_computes(program: Program) -> None:
    captured = Captured()
    once = torch.compile(program.function, backend=recording_backend(captured))
    for stage in INTERPRETED:
        captured.interpreted = stage  # later calls reuse the graphs of the first
        assert_as_eager(once, program.function, program.inputs())


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_kernels_compute_what_eager_computes(program: Program) -> None:
    assert_as_eager(compiled(program.function), program.function, program.inputs())


def test_the_judge_detects_a_wrong_value_stride_dtype_and_sign_of_zero() -> None:
    right = torch.ones(2, 3)
    for wrong in (right * 1.01, right.t().contiguous().t(), right.double()):
        with pytest.raises(AssertionError):
            assert_same(wrong, right)
    with pytest.raises(AssertionError):
        assert_same(torch.tensor(-0.0), torch.tensor(0.0), exact=True)


def test_copies_of_inputs_keep_their_layout_and_share_no_memory() -> None:
    original = torch.arange(12.0).reshape(3, 4)[:, 1:3].t()
    expanded = torch.ones(1).expand(3)
    twins = copies([original, expanded])
    assert [t.stride() for t in twins] == [(1, 4), (0,)]
    assert torch.equal(twins[0], original)
    twins[0].zero_()
    assert original.sum() == 33.0
