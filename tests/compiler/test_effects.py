"""What is known of the memory of a value."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tcdebug.compiler.effects import overlaps


@pytest.mark.parametrize(
    ("value", "several"),
    [
        (torch.ones(3, 1).expand(3, 4), True),
        (torch.ones(3, 4), False),
        (torch.ones(()).expand(1), False),
        (torch.ones(1).expand(0), False),
        (torch.ones(4, 1).expand(4, 2).t(), True),
    ],
)
def test_elements_of_an_expanded_tensor_share_memory(value: torch.Tensor, several: bool) -> None:
    assert overlaps(value) is several


def test_no_symbolic_size_is_compared() -> None:
    sizes = ShapeEnv()
    with FakeTensorMode(shape_env=sizes) as mode:
        value = mode.from_tensor(torch.ones(3, 4), static_shapes=False)
        assert not overlaps(value)
        assert overlaps(value[:, :1].expand(-1, 5))
    assert sizes.guards == []
