"""The search for the fastest tile, and the obstacles to a capture, both without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import f32
from stages import capture

from tcdebug.compiler.codegen.triton.source import write_triton
from tcdebug.compiler.codegen.triton.written import TritonKernel, zeros_are_valid_indices
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.runtime.cuda.autotune import LONGEST_SEARCH, descend
from tcdebug.compiler.runtime.cuda.capturable import obstacles, written_inputs


def kernels(function: Callable[..., Any], *inputs: Any) -> list[TritonKernel]:
    (schedule,) = capture(function, *inputs).schedules
    gate = Gate(Toggles.parse(()))
    return list(write_triton(schedule.kernels(), schedule.graph.buffers(), gate).kernels.values())


def kernel(function: Callable[..., Any], *inputs: Any) -> TritonKernel:
    (only,) = kernels(function, *inputs)
    return only


def test_the_search_ends_at_a_local_minimum() -> None:
    start = kernel(lambda x: x.sin() + 1, f32(512, 512))

    def milliseconds(tried: TritonKernel) -> float:
        assert f"XBLOCK = {tried.tile.group('x').block}" not in tried.call.source
        return abs(tried.tile.group("x").block - 4096) + abs(tried.tile.warps - 8) * 10 + 1.0

    tile, tried = descend(start, milliseconds)
    assert (tile.group("x").block, tile.warps) == (4096, 8)
    assert 3 < tried <= LONGEST_SEARCH


def test_a_tile_that_the_device_cannot_hold_is_skipped() -> None:
    start = kernel(lambda x: x.sin() + 1, f32(512, 512))

    def milliseconds(tried: TritonKernel) -> float:
        if tried.tile != start.tile:
            raise KernelError("too much shared memory")
        return 1.0

    assert descend(start, milliseconds)[0] == start.tile


def test_a_persistent_tile_still_covers_whole_rows() -> None:
    start = kernel(lambda x: x.softmax(-1), f32(512, 512))
    assert start.tile.persistent
    seen: set[int] = set()

    def milliseconds(tried: TritonKernel) -> float:
        seen.add(tried.tile.group("r").block)
        return 1.0

    descend(start, milliseconds)
    assert seen == {512}


def updated_index(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[i].cos(), i.add_(3)


INDICES: dict[str, tuple[Callable[..., Any], bool]] = {
    "read": (lambda x, i: x[i].cos(), True),
    "read as int32": (lambda x, i: x[i.int()].cos(), True),
    "written at": (lambda x, i: x.index_put((i,), x[0]), True),
    "of an index": (lambda x, i: x[i[i]].cos(), True),
    "computed": (lambda x, i: x[i - 1].cos(), False),
    "of a computed index": (lambda x, i: x[i[i - 1]].cos(), False),
    "updated": (updated_index, False),
}


@pytest.mark.parametrize("name", INDICES)
def test_only_kernels_whose_indices_stay_in_range_on_zeros_are_measured(name: str) -> None:
    function, measured = INDICES[name]
    written = kernels(function, f32(16), torch.arange(16))
    assert all(map(zeros_are_valid_indices, written)) is measured


REASONS: dict[str, tuple[Callable[..., Any], str]] = {
    "cpu": (lambda x: x.sin(), "is on the CPU"),
    "size": (lambda x: torch.ones(x.int().sum().item()), "that only the CPU can read"),
}


@pytest.mark.parametrize("name", REASONS)
def test_an_obstacle_to_a_capture_is_named(name: str) -> None:
    function, reason = REASONS[name]
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        (schedule,) = capture(function, f32(4, 5)).schedules
    assert any(reason in found for found in obstacles(schedule))


def test_inputs_that_are_written_to_are_given_by_position() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        y.add_(x)
        return z

    (schedule,) = capture(function, f32(4), f32(4)).schedules
    assert written_inputs(schedule) == {1}
