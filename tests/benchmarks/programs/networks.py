"""Layers of transformers, convnets, recurrent nets, mixtures of experts and diffusion models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from programs.program import Modules, Place, Program, of_modules


class Attention(nn.Module):
    """Causal attention with rotated queries and keys."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[1]
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, self.size)).unbind(2)
        angle = torch.arange(rows, device=x.device)[:, None] / torch.arange(
            1, self.size // 2 + 1, device=x.device
        )
        cos, sin = angle.cos()[:, None].to(x.dtype), angle.sin()[:, None].to(x.dtype)

        def rotated(t: Tensor) -> Tensor:
            a, b = t.chunk(2, -1)
            return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).transpose(1, 2)

        y = F.scaled_dot_product_attention(
            rotated(q), rotated(k), v.transpose(1, 2), is_causal=True
        )
        return self.out(y.transpose(1, 2).flatten(2))


class LlamaLayer(nn.Module):
    """RMS norms, rotated attention and a gated product."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, 4)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    """A residual block of convolutions and batch norms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)]
            layers.append(nn.ReLU())
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.layers(x)).relu()


class Diffusion(nn.Module):
    """A block of a U-net: group norms, SiLU, an embedding of the time added per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(2))
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(128, 2 * channels)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.layers[0](F.silu(self.norms[0](x)))
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        y = self.norms[1](y) * (1 + scale) + shift
        return x + self.layers[1](F.silu(y))


class Experts(nn.Module):
    """A mixture of experts: each row is weighted by the two best of eight experts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 8)
        self.up = nn.Parameter(torch.randn(8, width, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(8, width, width) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        weights, best = self.router(x).softmax(-1).topk(2, -1)
        share = torch.zeros(x.shape[0], 8, device=x.device, dtype=x.dtype)
        share = share.scatter(1, best, weights / weights.sum(-1, keepdim=True))
        hidden = F.gelu(torch.einsum("nd,edh->enh", x, self.up))
        return torch.einsum("enh,ehd,ne->nd", hidden, self.down, share)


class Recurrent(nn.Module):
    """Eight steps of a gated cell that is written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        state = x[0]
        for step in x:
            state = self.norm(self.cell(step, state))
        return state


class Quantised(nn.Module):
    """A linear layer with weights of int8 and a scale for each row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (width, width), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(width, 1) / 127)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype) * self.scale)


def _rounded(x: Tensor) -> Tensor:
    """Activations rounded to 8 bits by row and back."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8).to(x.dtype) * scale


def _frozen_statistics(module: nn.Module) -> nn.Module:
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            child.eval()
    return module


NETWORKS: Modules = {
    "transformer.encoder": (
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True),
        lambda p: (p.batch(4, 128, 256),),
    ),
    "transformer.decoder": (
        lambda: nn.TransformerDecoderLayer(256, 4, 1024, dropout=0.0, batch_first=True),
        lambda p: (p.batch(2, 64, 256), p.batch(2, 64, 256)),
    ),
    "transformer.llama": (LlamaLayer, lambda p: (p.batch(4, 128, 256),)),
    "transformer.mlp": (
        lambda: nn.Sequential(
            nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)
        ),
        lambda p: (p.batch(256, 256),),
    ),
    "convnet.conv_bn_relu": (
        lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        lambda p: (p.batch(8, 16, 56, 56),),
    ),
    "convnet.residual": (lambda: Residual(32), lambda p: (p.batch(4, 32, 28, 28),)),
    "convnet.residual_frozen": (
        lambda: _frozen_statistics(Residual(32)),
        lambda p: (p.batch(4, 32, 28, 28),),
    ),
    "convnet.stem": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        ),
        lambda p: (p.batch(4, 3, 128, 128),),
    ),
    "recurrent.gru": (lambda: Recurrent(128), lambda p: (p.normal(8, p.scaled(32), 128),)),
    "experts": (lambda: Experts(128), lambda p: (p.batch(256, 128),)),
    "diffusion.block": (
        lambda: Diffusion(32),
        lambda p: (p.batch(4, 32, 32, 32), p.batch(4, 128)),
    ),
    "quantised.linear": (lambda: Quantised(512), lambda p: (p.batch(64, 512),)),
    "quantised.round": (lambda: _Function(_rounded), lambda p: (p.batch(1024, 768),)),
}  # fmt: skip


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def programs(place: Place) -> Iterator[Program]:
    """All networks in training mode: forward and backward, in all `DTYPES`."""
    yield from of_modules("networks", NETWORKS, place)
