"""Graphs of a chosen size, like those of a model of many equal blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from captured import captured, targets

from tcdebug.minifier.cases.case import Case

SIZES = (64, 125, 247, 491)
ONCE = ((1 / 6, torch.exp), (1 / 2, torch.relu), (5 / 6, torch.sin))
"""Operators that occur once in a graph, and their relative position."""
PLANTED = (("relu",), ("relu", "softmax", "cat"), ("exp", "relu", "sin"))
"""What failures need: one operator, a rare one with two common ones, or three far apart."""
ROWS, COLUMNS = 4, 8


def block(h: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the values of one block. Each is computed by one node when it is requested."""
    yield (h := h @ w)
    yield (h := h + b)
    yield (gate := torch.sigmoid(h))
    yield (left := torch.tanh(h))
    yield (mean := left.mean(-1, keepdim=True))
    yield (h := gate - mean)
    yield (h := torch.softmax(h, -1))
    yield (h := torch.cat([h, left], -1))
    yield (h := h.view(ROWS, 2, COLUMNS))
    yield (h := h.sum(1))
    yield (cosine := torch.cos(h))
    yield h * cosine


def blocks(size: int) -> Callable[..., torch.Tensor]:
    """Return a function of `size` nodes: blocks, and between them the operators that occur once."""

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        count, h = 0, x
        once = list(ONCE)
        while True:
            for value in block(h, w, b):
                h = value
                count += 1
                if count == size:
                    return h
            if once and count >= once[0][0] * (size - 12):
                h = once.pop(0)[1](h)
                count += 1

    return function


def arguments() -> tuple[torch.Tensor, ...]:
    """Return the arguments of the functions."""
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(size, generator=generator)
        for size in ((ROWS, COLUMNS), (COLUMNS, COLUMNS), (COLUMNS,))
    )


def block_graph(size: int) -> Case:
    """Return the graph with this many nodes, as Dynamo captures it."""
    torch.compiler.reset()
    case = captured(blocks(size), *arguments())
    assert case.size == size
    return case


def holds(case: Case, planted: tuple[str, ...]) -> bool:
    """Replace a rerun: a case fails if all these calls are in it."""
    return set(planted) <= set(targets(case))
