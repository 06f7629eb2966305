"""Compiled code that reads memory before it writes it fails every time."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured import captured

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.judging.unwritten import filled_memory, memory_for_calls, undefined
from tcdebug.minifier.targets.backends import Backend

SIZE = 1 << 21  # so large that the C library takes new memory, which is zero


def leaves_out_the_end(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    def call(*args: Any) -> tuple[torch.Tensor]:
        result = torch.empty_like(args[0])
        result[:-1] = 0
        return (result,)

    return call


def outcome_of(function: Any, backend: Any) -> Outcome:
    case = captured(function, torch.ones(SIZE))
    return judge(case, Backend(backend, "mine"), Toggles(), lambda phase: None, "candidate.py")


fills_small_tensors = pytest.mark.skipif(
    tuple(map(int, (platform.libc_ver()[1] or "0").split("."))) >= (2, 38),
    reason="glibc takes aligned memory from a cache that it does not fill",
)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, -1.694739530317379e38),
        (torch.int32, -16843010),
        (torch.uint8, 254),
        (torch.bool, True),
    ],
)
def test_memory_that_is_allocated_in_the_block_is_filled(dtype: torch.dtype, expected: Any) -> None:
    with filled_memory():
        values = torch.empty(2048, dtype=dtype)
    assert values.tolist() == [expected] * 2048


@fills_small_tensors
@pytest.mark.parametrize("kept", range(8))
def test_small_memory_that_was_freed_before_the_block_is_filled(kept: int) -> None:
    """Freed neighbours are joined, and the parts of them that remain have many sizes."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p

    def allocated(size: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(library.malloc(ctypes.c_size_t(size)))

    for size in (80, 176):
        for _ in range(10_000):  # so that the next blocks are neighbours
            allocated(size)
    for _ in range(5):
        neighbours = [allocated(80) for _ in range(19)]
        allocated(40)
        for block in neighbours:
            ctypes.memset(block, 0x33, 80)
            library.free(block)
        for _ in range(kept):
            allocated(80)
        with filled_memory():
            values = torch.empty(64, dtype=torch.uint8)
        assert values.tolist() == [254] * 64


def test_a_half_in_filled_memory_is_not_a_number() -> None:
    with filled_memory():
        assert torch.empty(2048, dtype=torch.float16).isnan().all()


def test_zeros_are_zero_in_filled_memory() -> None:
    with filled_memory():
        assert torch.zeros(SIZE).any().item() is False


def test_an_element_that_is_not_written_is_wrong_although_new_memory_is_zero() -> None:
    outcome = outcome_of(lambda x: x * 0, leaves_out_the_end)
    assert (outcome.kind, outcome.signature) == (Kind.WRONG, "forward | wrong value")
    assert "1 of 2097152 out of tolerance" in outcome.message


def memory_of(run: Callable[[], torch.Tensor], eager: torch.Tensor) -> Any:
    return memory_for_calls(run, lambda again: torch.equal(again, eager), lambda *runs: None)


def test_memory_is_left_alone_if_eager_does_not_write_it_either() -> None:
    def fails() -> torch.Tensor:
        raise ZeroDivisionError

    made = torch.zeros(3)
    assert memory_of(lambda: torch.empty(3), made) is contextlib.nullcontext
    assert memory_of(fails, made) is contextlib.nullcontext
    assert memory_of(lambda: torch.zeros(3), made) is filled_memory


@pytest.mark.parametrize("byte", [0x00, 0x33, 0xFE])
def test_unwritten_elements_are_found_whatever_memory_eager_got(byte: int) -> None:
    with filled_memory(byte):
        eager = torch.empty(64)
    eager[9] = 5.0

    def again() -> torch.Tensor:
        values = torch.empty(64)
        values[9] = 5.0
        return values

    found: list[torch.Tensor | None] = []
    memory = memory_for_calls(
        again,
        lambda results: False,
        lambda *runs: found.extend(undefined([eager], *([run] for run in runs))),
    )
    assert memory is contextlib.nullcontext
    assert found[0] is not None
    assert [at for at in range(64) if not found[0][at]] == [9]


def test_a_program_that_writes_all_it_allocates_passes() -> None:
    def copied(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(x)
        result.copy_(x)
        return result

    assert outcome_of(copied, "eager").kind is Kind.OK
    assert outcome_of(copied, "tcdebug").kind is Kind.OK


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_elements_that_the_program_does_not_write_do_not_count(backend: str) -> None:
    torch.full((64, 5), 3.0)  # its freed memory is what eager finds

    def partly(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.new_empty(64, 5)
        rows[1:] = 1.0
        return rows, torch.empty_like(x)

    assert outcome_of(partly, backend).kind is Kind.OK


def test_an_element_that_the_program_writes_counts_beside_others() -> None:
    def wrong(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        def call(*args: Any) -> tuple[torch.Tensor]:
            return (torch.full((64,), 2.0),)

        return call

    def partly(x: torch.Tensor) -> torch.Tensor:
        row = x.new_empty(64)
        row[60:] = 1.0
        return row

    outcome = outcome_of(partly, wrong)
    assert outcome.kind is Kind.WRONG
    assert "4 of 64 out of tolerance, worst 2 instead of 1" in outcome.message
