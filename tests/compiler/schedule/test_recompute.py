"""fuse.recompute: what is computed again because that reads fewer bytes than storing it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.schedule.inlining import recompute

Function = Callable[[torch.Tensor], torch.Tensor]


def stored(function: Function, x: Callable[[], torch.Tensor], *off: str) -> list[list[str]]:
    """The nodes that each kernel of a GPU stores, in the order of the kernels."""
    source = triton_of(lambda: (function, (x(),)), off=list(off))
    return [sorted(call.kernel.stored) for call in source.calls.values()]


def few_columns() -> torch.Tensor:
    return cuda(800_024, 13)


def test_exponentials_of_divided_columns_are_not_stored() -> None:
    kept = [["amax_max_piece", "sum_1_sum_piece"], ["amax_max", "sum_1_sum"], ["div"]]
    assert stored(lambda x: x.softmax(0), few_columns) == kept


def test_what_is_stored_in_another_order_than_it_is_read_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A torch without CUDA cannot make fake tensors of a GPU contiguous."""
    monkeypatch.setattr(recompute, "DEVICES", ("cpu",))
    x = torch.empty_strided((24, 1021, 640), (1, 24, 24504))
    source = triton_of(lambda: (lambda x: x.softmax(1), (x,)), "cpu")
    names = [sorted(call.kernel.stored) for call in source.calls.values()]
    assert names == [["amax_max", "sum_1_sum"], ["div"]]


def with_padded_result(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(101, device=x.device)
    wide = torch.where(places == x, places * x - places * 3 + 1, 0)
    return F.pad(wide - wide.sum(1, keepdim=True), (0, 3))


def in_two_parts(x: torch.Tensor) -> torch.Tensor:
    left, right = (x.sin() * x.cos() + x.exp() * 2 + 1).chunk(2, 1)
    return left * right.sigmoid()


def rolled(x: torch.Tensor) -> torch.Tensor:
    waves = x.sin().exp()
    return waves.roll(3, 1) - waves.sum(1, keepdim=True)


def flipped_and_reshaped(x: torch.Tensor) -> torch.Tensor:
    waves = x.sin().exp()
    return waves.flip(1).view(64, 4, 64) - waves.view(64, 4, 64).sum(2, keepdim=True)


PARTIAL: dict[str, tuple[Function, tuple[int, int], list[list[str]]]] = {
    "padded rows": (with_padded_result, (64, 1), [["sum_1_sum"], ["constant_pad_nd"]]),
    "rolled rows": (rolled, (64, 256), [["sub"]]),
    "reversed rows": (flipped_and_reshaped, (64, 256), [["sub"]]),
    "halves of rows": (in_two_parts, (64, 256), [["mul_2"]]),
}


@pytest.mark.parametrize("name", PARTIAL)
def test_what_a_consumer_reads_elsewhere_or_in_part_is_computed_again(name: str) -> None:
    function, size, expected = PARTIAL[name]
    assert stored(function, lambda: cuda(*size)) == expected
    off = stored(function, lambda: cuda(*size), "fuse.recompute")
    assert sum(map(len, off)) > sum(map(len, expected))


def columns_of(rows: torch.Tensor) -> torch.Tensor:
    return (rows - rows.mean(0)).abs().sum(0)


def rolled_past_rows(x: torch.Tensor) -> torch.Tensor:
    rows = x.softmax(1)
    return rows.roll(1, 0) - rows.mean(1, keepdim=True)


COLUMNS = ["mean_sum_piece"], ["mean_sum"], ["sum_2_sum_piece"], ["sum_2_sum"]
AFTER_ROWS: dict[str, tuple[Function, list[list[str]]]] = {
    "columns": (lambda x: columns_of(x.softmax(1).tanh()), [["amax_max", "sum_1_sum"], *COLUMNS]),
    "rows in another order": (rolled_past_rows, [["amax_max", "mean_sum", "sum_1_sum"], ["sub_1"]]),
}


@pytest.mark.parametrize("name", AFTER_ROWS)
def test_kernels_after_one_of_rows_compute_its_elements_from_values_of_rows(name: str) -> None:
    function, expected = AFTER_ROWS[name]
    assert stored(function, lambda: cuda(40_000, 100)) == expected


def test_what_takes_longer_to_compute_than_to_read_is_stored_and_read() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.softmax(1).tanh().sin().exp().cos().sigmoid()
        return columns_of(rows), (rows * 2 + 1).roll(1, 0).sum(1)

    kernels = stored(function, lambda: cuda(40_000, 100))
    assert kernels == [["sigmoid"], *COLUMNS, ["sum_3_sum"]]


def test_what_a_sum_of_everything_reads_is_computed_in_the_kernel_of_rows() -> None:
    kernels = stored(lambda x: x.softmax(1).tanh().sum(), lambda: cuda(40_000, 100))
    assert kernels == [["sum_2_sum_piece"], ["sum_2_sum_piece_"], ["sum_2_sum"]]


def test_means_of_columns_that_only_the_shared_cache_holds_cost_as_much_as_half_of_an_element() -> (
    None
):
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x - x.mean(0)
        x = F.gelu(x - x.mean(0))
        return (x - x.mean(-1, keepdim=True)).sum(-1), (x * 2).roll(1, 1).sum(-1)

    assert ["mul_2", "sum_1_sum"] in stored(function, lambda: cuda(2048, 64, 56, 56))
    few = stored(function, lambda: cuda(2048 * 64 * 56, 56))
    assert all("mul_2" not in kept for kept in few)


def with_kept_exponentials(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    exponentials = (x - x.amax(0)).exp()
    return exponentials, exponentials.sum(0)


def multiplied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    waves = x.sin().exp()
    return waves.T @ waves, waves.flip(1) - waves.sum(1, keepdim=True)


STORED: dict[str, tuple[Function, str]] = {
    "a result of the program": (with_kept_exponentials, "exp"),
    "what a call reads": (multiplied, "exp"),
}


@pytest.mark.parametrize("name", STORED)
def test_nothing_is_computed_again_that_is_in_memory_anyway(name: str) -> None:
    function, kept = STORED[name]
    assert any(kept in names for names in stored(function, lambda: cuda(40_000, 100)))
