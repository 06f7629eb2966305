"""Fusions of two to eight operations, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from programs.program import DTYPES, Made, Place, Program, differentiated

SIZES = ((512, 1000), (64, 127, 129), (1031, 257), (8, 32, 56, 56), (4096, 64))
CHAINS = 60

Link = Callable[[Tensor, Tensor], Tensor]
LINKS: dict[str, Link] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: y - x,
    "div": lambda x, y: x / (y.abs() + 1),
    "where": lambda x, y: torch.where(x > y, x, y * 0.5),
    "exp": lambda x, y: (x.clamp(-5, 5)).exp(),
    "log": lambda x, y: (x.abs() + 1).log(),
    "tanh": lambda x, y: x.tanh(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "gelu": lambda x, y: F.gelu(x),
    "relu": lambda x, y: x.relu(),
    "softmax": lambda x, y: x.softmax(-1),
    "log_softmax": lambda x, y: x.log_softmax(-1),
    "centered": lambda x, y: x - x.mean(-1, keepdim=True),
    "scaled": lambda x, y: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    "columns": lambda x, y: x - x.mean(0, keepdim=True),
    "largest": lambda x, y: x / (x.abs().amax(-1, keepdim=True) + 1),
    "reversed": lambda x, y: x.flip(-1),
    "rolled": lambda x, y: x.roll(1, 0),
    "cumsum": lambda x, y: x.cumsum(-1) * 1e-2,
    "padded": lambda x, y: F.pad(x[..., 1:], (1, 0)),
    "gathered": lambda x, y: x.gather(-1, y.argsort(-1)),
    "joined": lambda x, y: torch.cat((x.chunk(2, -1)[0].tanh(), *y.chunk(2, -1)[1:]), -1),
}
"""What a chain does to its value, with a second operand of the same size."""
ENDS: dict[str, Callable[[Tensor], Any]] = {
    "": lambda x: x,
    "sum": lambda x: x.sum(-1),
    "sum_first": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(-1),
    "var": lambda x: torch.var_mean(x, -1),
}


def _chain(number: int) -> tuple[str, tuple[int, ...], Callable[[Tensor, Tensor], Any]]:
    drawn = random.Random(number)  # the same program in every run
    names = [drawn.choice(list(LINKS)) for _ in range(drawn.randint(2, 8))]
    end = drawn.choice(list(ENDS))

    def function(x: Tensor, y: Tensor) -> Any:
        for name in names:
            x = LINKS[name](x, y)
        return ENDS[end](x)

    return "-".join([*names, end]).rstrip("-"), drawn.choice(SIZES), function


def programs(place: Place) -> Iterator[Program]:
    """The chains in all `DTYPES`, every second one with gradients."""
    for number in range(CHAINS):
        name, size, function = _chain(number)
        for short, dtype in DTYPES.items():
            there = place.of(dtype)
            gradients = number % 2 == 1

            def made(
                place: Place = there,
                size: tuple[int, ...] = size,
                function: Callable[..., Any] = function,
                gradients: bool = gradients,
            ) -> Made:
                given = [place.batch(*size) for _ in range(2)]
                return differentiated(function, *given) if gradients else Made(function, (*given,))

            suffix = f"{short}.grad" if gradients else short
            yield Program(f"fusions/{number}.{name}.{suffix}", "fusions", made)
