"""fuse.split_reduction: pieces of a reduction to one result, and the rows of its operands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from traced_on_cuda import cuda, triton_of

Loss = Callable[[torch.Tensor], torch.Tensor]


def stored(function: Loss, *size: int) -> list[list[str]]:
    """The sizes of the buffers that each kernel of a GPU stores, in the order of the kernels."""
    source = triton_of(lambda: (function, (cuda(*size),)))
    return [
        [str([*node.out.size]) for node in call.kernel.nodes if node.name in call.kernel.stored]
        for call in source.calls.values()
    ]


def test_a_sum_of_all_elements_is_cut_into_pieces() -> None:
    assert stored(lambda x: x.sum(), 4096, 1000) == [["[1000]"], ["[]"]]


OF_ROWS: dict[str, Loss] = {
    "softmax": lambda x: x.log_softmax(-1).mean(),
    "norm": lambda x: (F.rms_norm(x, (1000,)) * x).sum(),
    "layer norm": lambda x: F.layer_norm(x, (1000,)).square().mean(),
    "largest": lambda x: (x / x.amax(-1, keepdim=True)).sum(),
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
