"""fuse.split_reduction: pieces of a reduction to one result, and the rows of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.schedule.splitting import split_reduction

half = torch.bfloat16
Loss = Callable[[torch.Tensor], torch.Tensor]


def stored(function: Loss, *size: int) -> list[list[str]]:
    """The sizes of the buffers that each kernel of a GPU stores, in the order of the kernels."""
    source = triton_of(lambda: (function, (cuda(*size),)))
    return [
        [str([*node.out.size]) for node in call.kernel.nodes if node.name in call.kernel.stored]
        for call in source.calls.values()
    ]


def permuted(*size: int) -> torch.Tensor:
    """A tensor whose last dimension has the largest stride."""
    strides = [math.prod(size[:k]) for k in range(len(size))]
    return torch.empty_strided(size, strides, device="cuda")


def test_a_sum_of_all_elements_is_cut_into_pieces() -> None:
    assert stored(lambda x: x.sum(), 4096, 1000) == [["[1024]"], ["[]"]]


def test_the_elements_of_a_piece_are_neighbours_in_memory() -> None:
    source = triton_of(lambda: (lambda x: x.sum(), (permuted(256, 8, 3000),)))
    first, *_ = source.kernels.values()
    assert [a.size for a in first.flat.outer] == [1000]
    assert [a.size for a in first.flat.inner] == [3 * 8 * 256]
    (load,) = loads(first.flat.nodes[0].body)
    assert repr(load.index[0]) == "i0*6144 + r0"


def test_pieces_of_few_columns_take_rows_in_turns() -> None:
    source = triton_of(lambda: (lambda x: x.sum(0), (cuda(800_000, 13),)))
    first, *_ = source.kernels.values()
    assert [a.size for a in (*first.flat.outer, *first.flat.inner)] == [2000 * 13, 400]
    (load,) = loads(first.flat.nodes[0].body)
    assert repr(load.index[0]) == "i1 + r0*26000"


def test_pieces_of_short_rows_lie_along_several_axes_if_one_is_too_short() -> None:
    source = triton_of(lambda: (lambda x: x.amax((0, 1, 2)), (cuda(128, 64, 28, 28, dtype=half),)))
    first, *_ = source.kernels.values()
    assert [a.size for a in (*first.flat.outer, *first.flat.inner)] == [64, 28, 28, 128]
    (load,) = loads(first.flat.nodes[0].body)
    assert repr(load.index[0]) == "i0*28 + i1*784 + i2 + r0*50176"


def test_columns_for_half_of_the_programs_are_not_cut() -> None:
    assert stored(lambda x: x.sum(0), 1021, 15360) == [["[15360]"]]
    assert stored(lambda x: x.amax(0) - x, 1021, 15360) == [["[1021, 15360]"]]


VARIANCES: dict[str, tuple[Loss, tuple[int, ...], list[list[str]]]] = {
    "of columns": (lambda x: x.var(0), (61_976, 251), [["[488, 251]"] * 2, ["[251]"]]),
    "of columns in pieces of two lengths": (
        lambda x: x.var(0), (61_979, 251), [["[485, 251]"] * 2, ["[251]"]],
    ),
    "of columns that a cache holds": (
        lambda x: x.var(0), (30_988, 251), [["[244, 251]"] * 2, ["[251]"]],
    ),
    "of channels": (
        lambda x: x.var((0, 2)), (512, 32, 3136), [["[32, 32]"] * 2, ["[32]"]],
    ),
    "of few columns in many pieces": (
        lambda x: x.var(0), (800_024, 13),
        [["[3126, 13]"] * 2, ["[1, 13]"], ["[55, 13]"], ["[13]"]],
    ),
    "of pieces that are combined in two steps": (
        lambda x: x.var((0, 1, 2)), (1024, 64, 28, 28),
        [["[28, 64, 8, 28]"] * 2, ["[28, 4, 28]"], ["[1, 1, 1, 28]"], ["[28, 4, 28]"], ["[28]"]],
    ),
    "of channels that are last": (
        lambda x: x.var(0), (3_211_264, 128),
        [["[25088, 128]"] * 2, ["[128, 128]"], ["[1, 128]"], ["[128, 128]"], ["[128]"]],
    ),
    "of everything": (lambda x: x.var(), (4096, 1000), [["[1024]"] * 2, ["[]"]]),
    "of rows": (lambda x: x.var(1), (4096, 1000), [["[4096]"]]),
    "of many long columns": (
        lambda x: x.var(0), (8192, 32_768),
        [["[64, 32768]"] * 2, ["[32768]"]],
    ),
    "of many columns": (lambda x: x.var(0), (1021, 15360), [["[15360]"]]),
    "written out": (
        lambda x: (x - x.sum(0) / 3).square().sum(0), (61_976, 251),
        [["[488, 251]"] * 2, ["[251]"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANCES)
def test_one_kernel_computes_the_pieces_of_a_variance_and_of_its_mean(name: str) -> None:
    function, size, expected = VARIANCES[name]
    assert stored(function, *size) == expected


EXPONENTIALS: dict[str, tuple[Loss, tuple[int, ...], list[list[str]]]] = {
    "of everything": (
        lambda x: x.logsumexp((0, 1)), (4096, 1000), [["[1024]"] * 2, ["[]"]],
    ),
    "of columns": (
        lambda x: x.logsumexp(0), (61_976, 251), [["[254, 251]"] * 2, ["[251]"]],
    ),
    "of columns in pieces of two lengths": (
        lambda x: x.logsumexp(0), (61_973, 251), [["[301, 251]"] * 2, ["[251]"]],
    ),
    "of columns in few pieces": (
        lambda x: x.logsumexp(0), (1021, 15360), [["[4, 15360]"] * 2, ["[15360]"]],
    ),
    "of many columns": (lambda x: x.logsumexp(0), (1021, 153_600), [["[153600]"]]),
    "of few long rows": (
        lambda x: x.softmax(1), (64, 900_001),
        [["[16, 64]"] * 2, ["[64, 1]", "[64, 1]"], ["[64, 900001]"]],
    ),
    "of many pieces": (
        lambda x: x.logsumexp((0, 2)), (100_000, 2, 640),
        [["[500, 2]"] * 2, ["[2]"]],
    ),
    "written out": (
        lambda x: (x - x.amax()).exp().sum(), (4096, 1000), [["[1024]"] * 2, ["[]"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_one_kernel_computes_the_pieces_of_exponentials_and_of_their_maximum(name: str) -> None:
    function, size, expected = EXPONENTIALS[name]
    assert stored(function, *size) == expected


def test_exponentials_of_other_distances_are_sums_like_others() -> None:
    sums = [["[1024]"], ["[]"]]
    assert stored(lambda x: (x - 0.5).exp().sum(), 4096, 1000) == sums
    assert stored(lambda x: (x - (x * 2).amax()).exp().sum(), 4096, 1000) == [*sums, *sums]
    assert stored(lambda x: (x - x.amin()).exp().sum(), 4096, 1000) == [*sums, *sums]


def test_exponentials_of_what_is_overwritten_are_read_where_they_were_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A torch without CUDA does not trace updates of inputs on a GPU."""
    monkeypatch.setattr(split_reduction, "DEVICES", ("cpu",))

    def first_kernel(function: Loss) -> list[str]:
        source = triton_of(lambda: (function, (torch.empty(61_976, 251),)), "cpu")
        return sorted(next(iter(source.calls.values())).kernel.stored)

    def updated(x: torch.Tensor) -> torch.Tensor:
        result = x.softmax(0)
        x.add_(1)
        return result

    assert first_kernel(lambda x: x.softmax(0)) == ["amax_max_piece", "sum_1_sum_piece"]
    assert first_kernel(updated) == ["amax_max_piece"]


def test_squares_of_distances_from_a_constant_or_from_another_mean_are_sums_like_others() -> None:
    assert stored(lambda x: (x - 0.5).square().sum(0), 61_976, 251) == [
        ["[254, 251]"], ["[251]"],
    ]  # fmt: skip
    of_doubles = stored(lambda x: (x - (x * 2).sum(0)).square().sum(0), 61_976, 251)
    assert of_doubles == [["[254, 251]"], ["[251]"], ["[254, 251]"], ["[251]"]]


def test_a_scan_of_few_rows_is_cut_into_pieces() -> None:
    assert stored(lambda x: x.cumsum(0), 800_000, 13) == [
        ["[2112, 13]"], ["[2112, 13]"], ["[800000, 13]"],
    ]  # fmt: skip
    assert stored(lambda x: x.to(torch.bfloat16).cumsum(1), 8, 100_003) == [
        ["[8, 24]"], ["[8, 24]"], ["[8, 100003]"],
    ]  # fmt: skip
    assert stored(lambda x: x.cumsum(1), 4096, 1000) == [["[4096, 1000]"]]


def test_places_of_few_long_rows_are_found_by_value_unless_elements_are_computed() -> None:
    found = [["[64, 1000]"], ["[1000]"], ["[64, 1000]"], ["[1000]"]]
    assert stored(lambda x: x.argmax(0), 8192, 1000) == found
    assert stored(lambda x: (x * 3 + 1).argmax(0), 8192, 1000) == [["[1000]"]]
    assert stored(lambda x: x.argmax(1), 8192, 1000) == [["[8192]"]]


OF_ROWS: dict[str, Loss] = {
    "softmax": lambda x: x.log_softmax(-1).mean(),
    "norm": lambda x: (F.rms_norm(x, (1000,)) * x).sum(),
    "layer norm": lambda x: F.layer_norm(x, (1000,)).square().mean(),
    "largest": lambda x: (x / x.amax(-1, keepdim=True)).sum(),
    "running sum": lambda x: x.cumsum(-1).mean(),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_sum_over_rows_that_are_reduced_too_stores_one_element_per_row(name: str) -> None:
    assert stored(OF_ROWS[name], 4096, 1000) == [["[4096]"], ["[]"]]


def test_the_results_of_many_rows_are_combined_in_pieces() -> None:
    assert stored(lambda x: x.softmax(-1).square().sum(), 300, 200, 129) == [
        ["[300, 200]"], ["[15]"], ["[]"],
    ]  # fmt: skip


def of_two_kinds_of_rows(x: torch.Tensor) -> torch.Tensor:
    return (x / x.amax(-1, keepdim=True) / x.amax((1, 2), keepdim=True)).sum()


def test_operands_that_are_reduced_over_different_rows_give_no_pieces() -> None:
    assert ["[200]"] in stored(of_two_kinds_of_rows, 400, 20, 129)
