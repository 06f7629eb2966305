"""Small models with the widths and norms of real ones, whose batches `--scale` enlarges."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from programs.networks import LlamaLayer
from programs.program import Modules, Place, Program, of_modules

VOCABULARY = 50257
"""That of GPT-2: rows of odd length."""


class Block(nn.Module):
    """A layer of GPT-2, or of a vision transformer if it is not causal."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.into(self.before(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The loss of a language model with two layers."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, 12, causal=True) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Bottleneck(nn.Module):
    """A block of a ResNet-50."""

    def __init__(self, channels: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
        )  # fmt: skip
        self.around = nn.Sequential(
            nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.layers(x) + self.around(x)).relu()


class UnetBlock(nn.Module):
    """Two convolutions behind group norms, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(2))
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            y = layer(F.silu(norm(y)))
        return x + y


class Patches(nn.Module):
    """The patches of images, as rows for a vision transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, width, 16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).flatten(2).transpose(1, 2)


def _resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), Bottleneck(64, 64), Bottleneck(256, 128, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
    )  # fmt: skip


def _unet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 64, 3, padding=1), UnetBlock(64), nn.Conv2d(64, 128, 3, 2, 1),
        UnetBlock(128), nn.Upsample(scale_factor=2), nn.Conv2d(128, 4, 3, padding=1),
    )  # fmt: skip


def _vit() -> nn.Module:
    blocks = (Block(384, 6, causal=False) for _ in range(2))
    return nn.Sequential(Patches(384), *blocks, nn.LayerNorm(384), nn.Linear(384, 1000))


MODELS: Modules = {
    "gpt": (Gpt, lambda p: (p.integers(VOCABULARY, 1, 128), p.integers(VOCABULARY, 1, 128))),
    "llama": (
        lambda: nn.Sequential(LlamaLayer(1024), LlamaLayer(1024), nn.RMSNorm(1024)),
        lambda p: (p.batch(1, 128, 1024),),
    ),
    "resnet": (_resnet, lambda p: (p.batch(1, 3, 128, 128),)),
    "unet": (_unet, lambda p: (p.batch(1, 4, 32, 32),)),
    "vit": (_vit, lambda p: (p.batch(1, 3, 128, 128),)),
}


def programs(place: Place) -> Iterator[Program]:
    """All models in training mode: forward and backward, in all `DTYPES`."""
    yield from of_modules("models", MODELS, place)
