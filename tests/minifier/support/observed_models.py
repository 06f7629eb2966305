"""Models whose values are observed, healthy or with a planted fault, in a forked process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.sessions.execution import Finished
from tcdebug.minifier.sessions.values import values_observed
from tcdebug.minifier.values.findings import REPORT, ValuesReport

Step = Callable[[Callable[..., Any]], None]
"""Runs a step of a model. It takes what compiles a module."""


def observe(
    step: Step, folder: Path, backend: str, *, oracle: str = "default", twice: bool = False
) -> ValuesReport:
    """Return the report of `tcdebug values` about a step, which runs in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    job = Job("values", "x.py", [], str(folder), wanted=Criteria(oracle), twice=twice)
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        with values_observed(job, EventLog(folder)):
            step(lambda f, **options: torch.compile(f, backend=backend, **options))
    except Finished:
        pass
    return msgspec.json.decode((folder / REPORT).read_bytes(), type=ValuesReport)


class Block(nn.Module):
    """A transformer block with a causal attention written out."""

    def __init__(self, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a feed-forward layer, each with a residual."""
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        x = x + self.out(functional.dropout(weights, self.dropout, self.training) @ v)
        return x + self.down(functional.gelu(self.up(self.second(x))))


def train(model: nn.Module, given: Tensor, compiled: Callable[..., Any], steps: int = 2) -> None:
    """Take steps of gradient descent."""
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(steps):
        run(given).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def transformer(compiled: Callable[..., Any], blocks: int = 2) -> None:
    """Train blocks in bfloat16."""
    model = nn.Sequential(*(Block() for _ in range(blocks))).bfloat16()
    train(model, torch.randn(2, 16, 32, dtype=torch.bfloat16), compiled)


def dropout(compiled: Callable[..., Any]) -> None:
    """Train with dropout."""
    train(nn.Sequential(Block(dropout=0.2), nn.Dropout(0.5)), torch.randn(2, 8, 32), compiled)


def convolutions(compiled: Callable[..., Any]) -> None:
    """Train convolutions with batch norm, whose statistics are updated in place, and pooling."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 4), nn.LogSoftmax(-1),
    )  # fmt: skip
    train(model, torch.randn(4, 3, 16, 16), compiled)


def half_convolutions(compiled: Callable[..., Any]) -> None:
    """The same operators in bfloat16."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(8, 8, 3)
    ).bfloat16()
    train(model, torch.randn(4, 3, 16, 16, dtype=torch.bfloat16), compiled)


def reductions(compiled: Callable[..., Any]) -> None:
    """Many reductions over long rows, with results of all kinds."""

    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x * y + 0.5
        return (
            z.sum(), z.sum(0), z.mean(-1), z.var(-1), z.amax(0), z.argmax(-1), z.cumsum(-1),
            z.logsumexp(-1), z.prod(0), (z > 0.3).sum(-1), z.norm(dim=1), z.std(0), z.softmax(0),
            torch.topk(z, 3).values, z.sort(-1).indices[:, :2], z.any(0), z.half().sum(-1),
        )  # fmt: skip

    run = compiled(step)
    for _ in range(2):
        run(torch.randn(64, 700), torch.randn(64, 700))


def in_place(compiled: Callable[..., Any]) -> None:
    """Updates of inputs and of views, and results that are views of inputs and of each other."""

    def step(x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        y.add_(x.sum(0)).mul_(1.5)
        x[1:3] = y
        z = x.clone()
        z.index_add_(0, index, x[:2])
        z[:, 0] += 1.0
        z[index] = z[index] * 2
        return x, x.t(), z, z[0], z.view(-1)[3:], y.expand(2, -1), torch.cat([z, x.flip(0)])

    run = compiled(step)
    x, y = torch.randn(6, 8), torch.randn(8)
    for _ in range(3):
        run(x, y, torch.tensor([1, 4]))


def dynamic(compiled: Callable[..., Any]) -> None:
    """One graph for several sizes, with gradients."""
    layer = nn.Linear(16, 16)

    def step(x: Tensor) -> Tensor:
        y = functional.gelu(layer(x)).softmax(-1)
        return torch.cat([y, y.new_ones(x.shape[0], 1)], 1).sum(0) / x.shape[0]

    run = compiled(step, dynamic=True)
    for rows in (5, 9, 13):
        run(torch.randn(rows, 16)).sum().backward()


def breaks(compiled: Callable[..., Any]) -> None:
    """Several graphs with a graph break between them, and their backwards."""
    one, two = nn.Linear(16, 16), nn.Linear(16, 16)

    def step(x: Tensor) -> Tensor:
        x = torch.tanh(one(x))
        torch._dynamo.graph_break()
        x = torch.sigmoid(two(x)) * x
        if x.sum() > 0:
            return x.exp()
        return x.sin()

    run = compiled(step)
    for _ in range(2):
        run(torch.randn(8, 16)).square().sum().backward()


def mixed(compiled: Callable[..., Any]) -> None:
    """Autocast, embedding, cross entropy, and masks from comparisons."""
    embedding, layer = nn.Embedding(50, 32), nn.Linear(32, 50)
    block = Block()

    def step(tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = block(embedding(tokens))
            x = torch.where(x > 0.1, x, x * 0.5).clamp(-2, 2)
            return functional.cross_entropy(layer(x).flatten(0, 1), tokens.flatten())

    run = compiled(step)
    for _ in range(2):
        run(torch.randint(0, 50, (2, 12))).backward()


HEALTHY: tuple[Step, ...] = (
    transformer, dropout, convolutions, half_convolutions, reductions, in_place, dynamic, breaks,
    mixed,
)  # fmt: skip


@contextmanager
def restored(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute or an item while the block runs."""
    if isinstance(owner, dict):
        before = owner[name]
        owner[name] = value
        try:
            yield
        finally:
            owner[name] = before
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def tried(step: Step, folder: Path, backend: str, **options: Any) -> ValuesReport | str:
    """Return the report, or the traceback of an exception."""
    try:
        return observe(step, folder, backend, **options)
    except BaseException:
        return traceback.format_exc()
