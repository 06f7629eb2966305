"""Norms over dimensions of one element."""

from __future__ import annotations

import pytest
import torch
from judge import assert_same, compiled
from programs import f32

DIMS = (-1, 0, (-1, -2), (0, -1), None)


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (3, 2, 1), (3, 1, 1)])
@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf")])
def test_dimensions_of_one_element_are_reduced_from_either_end(
    shape: tuple[int, ...], order: float
) -> None:
    def norms(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.linalg.vector_norm(x, order, dim, keepdim=kept)
            for dim in DIMS
            for kept in (False, True)
        ]

    x = f32(*shape)
    actual, expected = compiled(norms)(x), norms(x)
    assert [a.shape for a in actual] == [e.shape for e in expected]
    assert_same(actual, expected)


def test_a_number_has_a_norm() -> None:
    x = torch.tensor(-3.0)
    assert compiled(lambda x: x.norm())(x).item() == 3.0
    assert compiled(lambda x: torch.linalg.vector_norm(x, 3, dim=-1))(x).item() == 3.0
