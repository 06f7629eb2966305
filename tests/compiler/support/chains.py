"""Programs whose every step combines two earlier values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st

Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Steps = list[tuple[int, int, int]]
"""Two earlier values, modulo their number, and an operation, for each step."""


def chains(operations: Sequence[Operation], longest: int) -> st.SearchStrategy[Steps]:
    """Programs of two steps or more."""
    value, operation = st.integers(0, 9), st.integers(0, len(operations) - 1)
    return st.lists(st.tuples(value, value, operation), min_size=2, max_size=longest)


def values_of(
    steps: Steps, operations: Sequence[Operation], *given: torch.Tensor
) -> list[torch.Tensor]:
    """The given values, and that of each step."""
    values = list(given)
    for one, two, operation in steps:
        values.append(operations[operation](values[one % len(values)], values[two % len(values)]))
    return values
