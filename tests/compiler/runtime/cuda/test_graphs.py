"""The parts of CUDA graphs that need no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tcdebug.compiler.runtime.cuda import graphs


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[:, 1::2],
        lambda x: x[1:2].expand(5, 6),
        lambda x: x[:0],
        lambda x: x[2, 3],
    ],
)
def test_an_output_that_is_copied_keeps_its_layout(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    given = view(torch.arange(24.0).view(4, 6))
    made = graphs._copy(given)
    assert torch.equal(made, given)
    assert made.stride() == given.stride()
    assert made.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
