"""Eager, the loop IR after each stage, and the compiled kernels compute the same."""

from __future__ import annotations

import pytest
import torch
from judge import assert_as_eager, assert_same, copies
from programs import PROGRAMS, Program
from stages import STAGES, at_stage


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_stage_computes_what_eager_computes(program: Program, stage: str) -> None:
    assert_as_eager(at_stage(stage, program.function), program.function, program.inputs())


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
