"""Memory of a GPU that nothing has written yet is filled, in forward and in backward."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch

from tcdebug.minifier.judging.unwritten import filled_memory, filling_before_backward

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

FILLED = -1.694739530317379e38


@pytest.fixture(autouse=True)
def _no_memory_of_other_tests() -> None:
    """Only 512 MiB of freed memory are filled."""
    gc.collect()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("size", [64, 1 << 18, 1 << 22])
def test_memory_that_a_gpu_has_freed_is_filled(size: int) -> None:
    torch.zeros(size, device="cuda")
    with filled_memory():
        assert torch.empty(size, device="cuda").eq(FILLED).all()


def test_the_free_parts_of_a_block_in_use_are_filled() -> None:
    held = [torch.zeros(64, device="cuda") for _ in range(5)]
    del held[1], held[2]
    with filled_memory():
        taken = [torch.empty(64, device="cuda") for _ in range(64)]
        assert all(tensor.eq(FILLED).all() for tensor in taken)
    assert all(tensor.eq(0).all() for tensor in held)


def test_memory_that_forward_freed_is_filled_before_backward() -> None:
    phases: list[str] = []
    report = filling_before_backward(filled_memory, phases.append)
    with filled_memory():
        torch.zeros(1 << 22, device="cuda")
        report("backward")
        assert torch.empty(1 << 22, device="cuda").eq(FILLED).all()
    assert phases == ["backward"]


def test_memory_that_is_left_alone_is_not_filled_before_backward() -> None:
    report = filling_before_backward(contextlib.nullcontext, lambda phase: None)
    torch.zeros(1 << 22, device="cuda")
    report("backward")
    assert torch.empty(1 << 22, device="cuda").eq(0).all()
