"""Every optimizer of torch.optim, one compiled step over lists of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from programs.program import Made, Place, Program

LISTS: dict[str, list[tuple[int, ...]]] = {
    "seven": [(512, 512), (512,), (2048, 512), (2048,), (512, 2048), (512,), (1,)],
    "many_small": [(64, 64), (64,)] * 20,
    "one": [(1024, 1024)],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD.momentum": {"momentum": 0.9},
    "SGD.nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    "Adam.amsgrad": {"amsgrad": True},
    "AdamW.decay": {"weight_decay": 1e-2},
    "RMSprop.centered": {"centered": True, "momentum": 0.9},
}
NEEDS_A_CLOSURE = ("LBFGS",)
NEEDS_SPARSE_GRADIENTS = ("SparseAdam",)
OF_MATRICES = ("Muon",)


def _made(place: Place, kind: str, options: dict[str, Any], sizes: list[tuple[int, ...]]) -> Made:
    if kind in OF_MATRICES:
        sizes = [size for size in sizes if len(size) == 2]
    parameters = [nn.Parameter(place.normal(*size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = getattr(torch.optim, kind)(parameters, lr=1e-3, **options)
    return Made(optimizer.step, (), updated=tuple(parameters))


def programs(place: Place) -> Iterator[Program]:
    """Each optimizer with its default options, and some with others, over each list."""
    kinds = [
        name
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
        and name not in (*NEEDS_A_CLOSURE, *NEEDS_SPARSE_GRADIENTS)
    ]
    for variant in (*sorted(kinds), *OPTIONS):
        kind, options = variant.partition(".")[0], OPTIONS.get(variant, {})
        for name, sizes in LISTS.items():

            def made(
                kind: str = kind,
                options: dict[str, Any] = options,
                sizes: list[tuple[int, ...]] = sizes,
            ) -> Made:
                return _made(place, kind, options, sizes)

            yield Program(f"optimizers/{variant}.{name}", "optimizers", made)
