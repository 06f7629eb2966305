"""Statements that update tensors in place, and layouts of the tensors that they update."""

from __future__ import annotations

from collections.abc import Callable

import torch

Statement = Callable[[torch.Tensor, torch.Tensor], object]


def places(beside: torch.Tensor, *values: int) -> torch.Tensor:
    """Indices on the device of a tensor."""
    return torch.tensor(values, device=beside.device)


STATEMENTS: list[Statement] = [
    lambda x, y: x.add_(y),
    lambda x, y: y.mul_(x.sum(0)),
    lambda x, y: x[1:].sub_(y[:-1]),
    lambda x, y: x.copy_(y.flip(1)),
    lambda x, y: y.t().copy_(x * 2),
    lambda x, y: x.sub_(x.mean(1, keepdim=True)),
    lambda x, y: x.view(-1)[2:8].clamp_(-1, 1),
    lambda x, y: y.copy_(x.t().cumsum(0)),
    lambda x, y: y.diagonal().fill_(0.5),
    lambda x, y: x.masked_fill_(y > 0, 0.25),
    lambda x, y: x.div_(x.amax(0) + 2),
    lambda x, y: x[1:3].copy_(y[2:4]),
    lambda x, y: x[:, 1].add_(y[0]),
    lambda x, y: y[0, 1:4].mul_(x[0, :3]),
    lambda x, y: x.index_put_((places(x, 1, 3),), y[:2]),
    lambda x, y: y.index_add_(0, places(x, 2, 2, 0), x[:3]),
    lambda x, y: x.scatter_(1, places(x, 0, 2)[None], y * 3),
]
"""Updates of two matrices of size 5 x 5, of which the first can be viewed as a vector."""

ORDERED: list[Statement] = [
    *(STATEMENTS[k] for k in (1, 3, 4, 5, 6, 7, 8, 9, 10)),
    lambda x, y: x.add_(y.clone()),
    lambda x, y: x.add_(y * 0.5),
    lambda x, y: x[1:].sub_(y[:-1].clone()),
    lambda x, y: y[1:3].copy_(x[2:4] + 1),
    lambda x, y: x[:, 1].add_(y[0].sin()),
    lambda x, y: y[0, 1:4].mul_(x[0, :3].clone()),
]
"""Updates that read all of their operands before they write, also where the matrices overlap."""

Layouts = dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]]


def _numbers(*size: int) -> torch.Tensor:
    count = torch.Size(size).numel()
    return (torch.arange(count) * 37 % 19 / 7 - 0.8).view(size)


def _parts(rows: int, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first five rows of a matrix, and five rows from another start."""
    whole = _numbers(rows, 5)
    return whole[:5], whole[start : start + 5]


APART: Layouts = {
    "in rows": lambda: (_numbers(5, 5), _numbers(5, 5) + 0.5),
    "bfloat16": lambda: (_numbers(5, 5).bfloat16(), _numbers(5, 5).bfloat16() + 0.5),
    "float16": lambda: (_numbers(5, 5).half(), _numbers(5, 5).half().t()),
    "transposed": lambda: (_numbers(5, 5), _numbers(5, 5).t()),
    "strided": lambda: (_numbers(5, 5), _numbers(9, 12)[::2, 1:11:2]),
    "side by side": lambda: _parts(10, 5),
}
"""Two matrices that share no element. The last two are parts of larger ones, or of one."""

SHARED: Layouts = {
    "overlapping rows": lambda: _parts(7, 2),
    "one transposed": lambda: (x := _numbers(5, 5), x.t()),
    "the same": lambda: (x := _numbers(5, 5), x),
    "two views of one": lambda: (x := _numbers(5, 5), x.view(5, 5)),
}
"""Two matrices that share memory."""
