"""Models in bfloat16 whose kernels round elsewhere than eager, and reuse memory in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from observed_models import train
from torch import Tensor, nn
from torch.nn import functional

BF16 = torch.bfloat16


class GatedCells(nn.Module):
    """A recurrent cell, written out. A kernel averages the state before it is rounded."""

    def __init__(self, width: int = 20, steps: int = 4) -> None:
        super().__init__()
        self.given, self.state = nn.Linear(12, 3 * width), nn.Linear(width, 3 * width)
        self.norm, self.steps, self.width = nn.LayerNorm(width), steps, width

    def forward(self, x: Tensor) -> Tensor:
        """The normalised states."""
        state, found = x.new_zeros(x.shape[0], self.width), []
        for k in range(self.steps):
            r, z, n = self.given(x[:, k]).chunk(3, -1)
            hr, hz, hn = self.state(state).chunk(3, -1)
            gate = torch.sigmoid(z + hz)
            state = (1 - gate) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + gate * state
            found.append(self.norm(state))
        return torch.stack(found, 1)


def convolved(width: int, out: int) -> nn.Module:
    """A group norm, an activation and a convolution."""
    return nn.Sequential(nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, out, 3, padding=1))


class Pyramid(nn.Module):
    """A U-Net. The parts of its concatenations are written into memory that was in use before."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.time = nn.Conv2d(3, width, 3, padding=1), nn.Linear(8, width)
        self.one, self.two = convolved(width, width), convolved(width, 2 * width)
        self.wide, self.three = nn.Conv2d(width, 2 * width, 1), convolved(2 * width, 2 * width)
        self.up, self.last = convolved(4 * width, width), convolved(2 * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Down twice, and up twice with bilinear interpolation."""
        angles = (torch.arange(4) / 4).exp() * x[:, :1, 0, 0].float()
        time = self.time(torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype))
        x = self.first(x) + time[:, :, None, None]
        high = x + self.one(x)
        middle = functional.avg_pool2d(high, 2)
        middle = self.wide(middle) + self.two(middle)
        low = functional.avg_pool2d(middle, 2)
        low = low + self.three(low)
        up = functional.interpolate(low, size=middle.shape[-2:], mode="bilinear")
        up = self.up(torch.cat((up, middle), 1))
        up = functional.interpolate(up, scale_factor=2, mode="bilinear", align_corners=True)
        return self.last(torch.cat((up, high), 1))  # type: ignore[no-any-return] # a Tensor


class RotaryLayer(nn.Module):
    """Attention with rotary embeddings and RMS norms, which compute in float32."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width, bias=False)
        self.out, self.up = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.down, self.scale = nn.Linear(2 * width, width), nn.Parameter(torch.ones(width))

    def normed(self, x: Tensor) -> Tensor:
        """The RMS norm of x."""
        wide = x.float()
        rounded = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return rounded * self.scale

    def turned(self, x: Tensor) -> Tensor:
        """x with its pairs rotated by their place."""
        steps = torch.outer(torch.arange(x.shape[-2]), 100.0 ** -torch.arange(0, 1, 0.25)).float()
        one, two = x[..., ::2].float(), x[..., 1::2].float()
        turned = (one * steps.cos() - two * steps.sin(), one * steps.sin() + two * steps.cos())
        return torch.stack(turned, -1).flatten(-2).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a feed-forward layer."""
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.normed(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.silu(self.up(self.normed(x))))


def cells(compiled: Callable[..., Any]) -> None:
    """Train a recurrent network."""
    train(GatedCells().to(BF16), torch.randn(7, 4, 12).to(BF16), compiled)


def pyramid(compiled: Callable[..., Any]) -> None:
    """Run a U-Net without gradients, and train it."""
    model, given = Pyramid().to(BF16), torch.randn(2, 3, 16, 16).to(BF16)
    with torch.no_grad():
        compiled(model)(given)
    torch._dynamo.reset()
    train(model, given, compiled)


def rotary(compiled: Callable[..., Any]) -> None:
    """Train transformer layers."""
    model = nn.Sequential(RotaryLayer(), RotaryLayer()).to(BF16)
    train(model, torch.randn(2, 24, 32).to(BF16), compiled)
