"""Modules and losses of torch.nn, at realistic sizes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from programs.program import Inputs, Modules, Place, Program, of_modules


def _normal(*size: int) -> Inputs:
    return lambda place: (place.batch(*size),)


ROWS, SIGNAL, IMAGE, VOLUME = (1024, 768), (16, 64, 512), (8, 32, 56, 56), (2, 16, 16, 28, 28)
SMALL = (4, 8, 28, 28)

ACTIVATIONS = (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink",
)  # fmt: skip
MODULES: Modules = {
    **{name: (getattr(nn, name), _normal(*ROWS)) for name in ACTIVATIONS},
    "GLU": (nn.GLU, _normal(*ROWS)),
    "Softmax": (lambda: nn.Softmax(-1), _normal(*ROWS)),
    "Softmax.0": (lambda: nn.Softmax(0), _normal(*ROWS)),
    "Softmax2d": (nn.Softmax2d, _normal(*IMAGE)),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), _normal(*ROWS)),
    "Softmin": (lambda: nn.Softmin(-1), _normal(*ROWS)),
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), _normal(*ROWS)),
    "Linear": (lambda: nn.Linear(768, 768), _normal(256, 768)),
    "Bilinear": (lambda: nn.Bilinear(64, 64, 32), lambda p: (p.batch(512, 64), p.batch(512, 64))),
    "Conv1d": (lambda: nn.Conv1d(64, 64, 3), _normal(*SIGNAL)),
    "Conv2d": (lambda: nn.Conv2d(32, 32, 3, padding=1), _normal(*IMAGE)),
    "Conv2d.depthwise": (lambda: nn.Conv2d(32, 32, 3, groups=32), _normal(*IMAGE)),
    "Conv3d": (lambda: nn.Conv3d(16, 16, 3), _normal(*VOLUME)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(32, 16, 2, 2), _normal(*IMAGE)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(768), _normal(*ROWS)),
    "BatchNorm1d.signal": (lambda: nn.BatchNorm1d(64), _normal(*SIGNAL)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(32), _normal(*IMAGE)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(16), _normal(*VOLUME)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(64, affine=True), _normal(*SIGNAL)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(32, affine=True), _normal(*IMAGE)),
    "GroupNorm": (lambda: nn.GroupNorm(8, 32), _normal(*IMAGE)),
    "LayerNorm": (lambda: nn.LayerNorm(768), _normal(*ROWS)),
    "LayerNorm.odd": (lambda: nn.LayerNorm(997), _normal(512, 997)),
    "RMSNorm": (lambda: nn.RMSNorm(768), _normal(*ROWS)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(5), _normal(*IMAGE)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), _normal(*SIGNAL)),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), _normal(*IMAGE)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), _normal(*VOLUME)),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 1, 1), _normal(*SIGNAL)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), _normal(*IMAGE)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), _normal(*VOLUME)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 3), _normal(*IMAGE)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), _normal(*IMAGE)),
    "AdaptiveAvgPool2d.7": (lambda: nn.AdaptiveAvgPool2d(7), _normal(*IMAGE)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(7), _normal(*IMAGE)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(3), _normal(*IMAGE)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(3), _normal(*IMAGE)),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(3, 1.0), _normal(*IMAGE)),
    "CircularPad2d": (lambda: nn.CircularPad2d(3), _normal(*IMAGE)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), _normal(*IMAGE)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), _normal(*IMAGE)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(4), _normal(*IMAGE)),
    "Unfold": (lambda: nn.Unfold(3), _normal(*IMAGE)),
    "Fold": (lambda: nn.Fold(56, 2, stride=2), _normal(8, 128, 784)),
    "Upsample.nearest": (lambda: nn.Upsample(scale_factor=2), _normal(*IMAGE)),
    "Upsample.bilinear": (
        lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        _normal(*IMAGE),
    ),
    "Upsample.bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), _normal(*SMALL)),
    "CosineSimilarity": (nn.CosineSimilarity, lambda p: (p.batch(*ROWS), p.batch(*ROWS))),
    "PairwiseDistance": (nn.PairwiseDistance, lambda p: (p.batch(*ROWS), p.batch(*ROWS))),
    "Embedding": (lambda: nn.Embedding(10_000, 128), lambda p: (p.integers(10_000, 64, 128),)),
    "Embedding.small": (lambda: nn.Embedding(64, 32), lambda p: (p.integers(64, 64, 512),)),
    "Embedding.padded": (
        lambda: nn.Embedding(1000, 64, padding_idx=0),
        lambda p: (p.integers(1000, 64, 128),),
    ),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(10_000, 64), lambda p: (p.integers(10_000, 512, 16),)),
    "LSTM": (lambda: nn.LSTM(64, 128), _normal(16, 8, 64)),
    "GRU": (lambda: nn.GRU(64, 128), _normal(16, 8, 64)),
    "RNN": (lambda: nn.RNN(64, 128), _normal(16, 8, 64)),
    "LSTMCell": (lambda: nn.LSTMCell(256, 256), _normal(64, 256)),
    "GRUCell": (lambda: nn.GRUCell(256, 256), _normal(64, 256)),
    "RNNCell": (lambda: nn.RNNCell(256, 256), _normal(64, 256)),
}  # fmt: skip


def _pair(place: Place) -> tuple[Tensor, ...]:
    return place.batch(*ROWS), place.batch(*ROWS)


def _classes(place: Place) -> tuple[Tensor, ...]:
    return place.batch(*ROWS), place.integers(768, 1024)


def _signs(place: Place, *size: int) -> Tensor:
    return (place.integers(2, *size) * 2 - 1).to(place.dtype)


OF_DIFFERENCES = ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")
LOSSES: Modules = {
    **{name: (getattr(nn, name), _pair) for name in OF_DIFFERENCES},
    "CrossEntropyLoss": (nn.CrossEntropyLoss, _classes),
    "CrossEntropyLoss.smooth": (lambda: nn.CrossEntropyLoss(label_smoothing=0.1), _classes),
    "CrossEntropyLoss.soft": (
        nn.CrossEntropyLoss,
        lambda p: (p.batch(*ROWS), p.batch(*ROWS).softmax(-1)),
    ),
    "CrossEntropyLoss.images": (
        nn.CrossEntropyLoss,
        lambda p: (p.batch(*IMAGE), p.integers(32, 8, 56, 56)),
    ),
    "NLLLoss": (nn.NLLLoss, lambda p: (p.batch(*ROWS).log_softmax(-1), p.integers(768, 1024))),
    "KLDivLoss": (
        lambda: nn.KLDivLoss(reduction="batchmean"),
        lambda p: (p.batch(*ROWS).log_softmax(-1), p.batch(*ROWS).softmax(-1)),
    ),
    "BCELoss": (nn.BCELoss, lambda p: (p.batch(*ROWS).sigmoid(), p.batch(*ROWS).sigmoid())),
    "BCEWithLogitsLoss": (
        nn.BCEWithLogitsLoss,
        lambda p: (p.batch(*ROWS), p.batch(*ROWS).sigmoid()),
    ),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, _pair),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, lambda p: (*_pair(p), p.batch(*ROWS).square() + 0.1)),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda p: (p.batch(*ROWS), _signs(p, *ROWS))),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, lambda p: (p.batch(*ROWS), _signs(p, *ROWS))),
    "MarginRankingLoss": (
        nn.MarginRankingLoss,
        lambda p: (p.batch(1 << 18), p.batch(1 << 18), _signs(p, 1 << 18)),
    ),
    "CosineEmbeddingLoss": (nn.CosineEmbeddingLoss, lambda p: (*_pair(p), _signs(p, 1024))),
    "TripletMarginLoss": (nn.TripletMarginLoss, lambda p: (*_pair(p), p.batch(*ROWS))),
    "MultiMarginLoss": (nn.MultiMarginLoss, lambda p: (p.batch(256, 100), p.integers(100, 256))),
    "MultiLabelSoftMarginLoss": (
        nn.MultiLabelSoftMarginLoss,
        lambda p: (p.batch(*ROWS), p.integers(2, *ROWS).to(p.dtype)),
    ),
    "CTCLoss": (
        nn.CTCLoss,
        lambda p: (
            p.normal(50, p.scaled(16), 20).log_softmax(-1), p.integers(19, 16, 30) + 1,
            torch.full((p.scaled(16),), 50), torch.full((p.scaled(16),), 20),
        ),
    ),
}  # fmt: skip


def programs(place: Place) -> Iterator[Program]:
    """All modules and losses, in training mode: forward and backward, in all `DTYPES`."""
    yield from of_modules("modules", MODULES, place)
    yield from of_modules("losses", LOSSES, place)
