"""A Triton kernel uses no value before the line that defines it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from traced_on_cuda import cuda, triton_of


def used_too_early(source: str) -> list[str]:
    """The names that a function of a kernel reads above the first line that assigns to them."""
    found: list[str] = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        first: dict[str, int] = {}
        for name in names:
            if isinstance(name.ctx, ast.Store):
                first[name.id] = min(name.lineno, first.get(name.id, name.lineno))
        found += [n.id for n in names if n.lineno < first.get(n.id, 0)]
    return found


def test_a_name_above_its_definition_is_found() -> None:
    text = "def f(x):\n    a = x + mask\n    for k in range(3):\n        mask = a + k\n"
    assert used_too_early(text) == ["mask"]


LONG = 1_048_577
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "rolled columns": (lambda x: x.roll(2, -1).cumsum(-3), lambda: (cuda(LONG, 4, 4),)),
    "chosen columns": (
        lambda x, i: x.index_select(1, i).cumsum(0),
        lambda: (cuda(LONG, 4), cuda(3, dtype=torch.int64)),
    ),
    "padded rows": (
        lambda x, i: F.pad(x.index_select(1, i), (0, 0, 1, 2)).sum(0),
        lambda: (cuda(LONG, 4), cuda(3, dtype=torch.int64)),
    ),
    "extremes so far": (lambda x: tuple(x.roll(1, 1).cummax(0)), lambda: (cuda(100_001, 4),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_is_checked_where_the_condition_of_its_read_is_known(name: str) -> None:
    """The condition depends on the position in a row, and the index does not."""
    function, inputs = PROGRAMS[name]
    source = triton_of(lambda: (function, inputs()))
    texts = [call.source for call in source.calls.values()]
    assert any("device_assert" in text for text in texts)
    assert [used_too_early(text) for text in texts] == [[]] * len(texts)
