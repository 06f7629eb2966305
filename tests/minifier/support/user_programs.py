"""Small programs with many kinds of nodes, with their arguments, on which reductions are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def chain(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y = y.exp().relu()
    y = y.tanh() * 2
    return (y - 0.5).sigmoid().sum(-1)


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.linear(x, w, b)
    y = torch.nn.functional.layer_norm(y, (4,)).tanh()
    return torch.softmax(y @ w, dim=-1) + x


def outputs(x: torch.Tensor) -> Any:
    a, b = (x * 2).chunk(2)
    return a.sin(), b.cos().tanh(), (a + b).sum()


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.add_(1)
    y[0] = y[1].tanh()
    return y * x


def mixed(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    picked = torch.where(x > 0, x.tanh(), x)
    return picked[k].to(torch.bfloat16).float() * k.sum()


def sized(x: torch.Tensor) -> torch.Tensor:
    return (x.view(-1).tanh() * x.shape[0]).sum()


def stateful(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = (x @ y).float()
    return (z + y).tanh() * x


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row.sum() * row)(x).tanh() + 1


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: (y * 2).sin(), x, use_reentrant=False).tanh() + x


def heads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k = torch.nn.functional.linear(x, w).split([8, 8], -1)
    q, k = (t.view(2, 3, 4, 2).transpose(1, 2) for t in (q, k))
    return torch.softmax(q @ k.transpose(2, 3), -1).sum((0, 1)).tanh()


def converted(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    scale = torch.tensor([1.5, 2.5, 3.5]).to(torch.float16)
    return (x.double() * scale).clamp(min=0.25).tanh() + torch.view_as_real(z).sum(-1)


def branching(x: torch.Tensor) -> torch.Tensor:
    y = torch.cond(x.sum() > 100, torch.cos, torch.sin, (x,))
    _, y = torch.while_loop(lambda k, _: k < 2, lambda k, v: (k + 1, v * 2.0), (torch.tensor(0), y))
    return y.tanh()


def arguments() -> dict[str, Program]:
    """Return the programs by name."""
    generator = torch.Generator().manual_seed(0)

    def noise(*size: int, grad: bool = False) -> torch.Tensor:
        return torch.randn(size, generator=generator).requires_grad_(grad)

    return {
        "chain": (chain, (noise(3, 4, grad=True),)),
        "layers": (layers, (noise(3, 4), noise(4, 4, grad=True), noise(4, grad=True))),
        "outputs": (outputs, (noise(4, 3),)),
        "in_place": (in_place, (noise(3),)),
        "mixed": (mixed, (noise(5), torch.tensor([1, 3, 4]))),
        "stateful": (stateful, (noise(3, 3, grad=True),)),
        "mapped": (mapped, (noise(3, 2),)),
        "checkpointed": (checkpointed, (noise(3, grad=True),)),
        "sized": (sized, (noise(3, 2),)),
        "heads": (heads, (noise(2, 3, 8), noise(16, 8, grad=True))),
        "converted": (
            converted,
            (noise(3, 4).to(torch.bfloat16).t()[::2], noise(2, 3).to(torch.complex128)),
        ),
        "branching": (branching, (noise(3, 2),)),
    }
