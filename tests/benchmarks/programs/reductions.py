"""Reductions over every choice of axes, of odd, prime, tiny and huge sizes, with all strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from programs.program import DTYPES, Made, Place, Program, differentiated

KINDS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "var_mean": torch.var_mean,
    "logsumexp": torch.logsumexp,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
}
OF_ONE_AXIS: dict[str, Callable[..., Any]] = {
    "argmax": torch.argmax,
    "max": torch.max,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "cumsum": torch.cumsum,
    "any": lambda x, dim: (x > 0).any(dim),
    "argmax_and_max": lambda x, dim: (x.argmax(dim), x.amax(dim)),
    "prod": lambda x, dim: (1 + x * 1e-3).prod(dim),
}
SIZES: dict[str, tuple[int, ...]] = {
    "even": (64, 128, 256),
    "prime": (61, 127, 251),
    "short_last": (512, 257, 7),
    "short_first": (3, 1021, 640),
    "short_middle": (509, 5, 768),
    "planes": (16, 64, 28, 28),
    "matrix": (1024, 1000),
    "tall": (100_003, 13),
    "wide": (11, 90_001),
    "long": (1_500_007,),
    "tiny": (7, 3, 5),
}
STRIDES = ("contiguous", "transposed", "sliced", "broadcast")


def _strided(place: Place, size: tuple[int, ...], strides: str) -> Tensor:
    if strides == "transposed":
        return place.normal(*reversed(size)).permute(*reversed(range(len(size))))
    if strides == "sliced":
        return place.normal(*size[:-1], size[-1] * 2)[..., ::2]
    if strides == "broadcast":
        return place.normal(1, *size[1:]).expand(size) if len(size) > 1 else place.normal(*size)
    return place.normal(*size)


def _choices(size: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(1, len(size) + 1):
        yield from combinations(range(len(size)), count)


def _reduction(
    place: Place, function: Callable[..., Any], over: Any, shape: str, strides: str
) -> Made:
    size = SIZES[shape]
    if shape != "tiny":
        size = (place.scaled(size[0]), *size[1:])
    x = _strided(place, size, strides)
    return Made(lambda x: function(x, dim=over), (x,))


def programs(place: Place) -> Iterator[Program]:
    """All reductions in float32; contiguous ones in all `DTYPES`."""
    for shape, size in SIZES.items():
        for strides in STRIDES:
            for over in _choices(size):
                several = {k: (f, list(over)) for k, f in KINDS.items()}
                if len(over) == 1:
                    several |= {k: (f, over[0]) for k, f in OF_ONE_AXIS.items()}
                for kind, (function, axes) in several.items():
                    named = f"reductions/{kind}.{shape}.{''.join(map(str, over))}.{strides}"
                    for short, dtype in DTYPES.items():
                        if dtype is torch.float32 or strides == "contiguous":
                            there = place.of(dtype)
                            yield _program(
                                f"{named}.{short}", there, function, axes, shape, strides
                            )


def _program(
    name: str, place: Place, function: Callable[..., Any], over: Any, shape: str, strides: str
) -> Program:
    return Program(name, "reductions", lambda: _reduction(place, function, over, shape, strides))


def gradients(place: Place) -> Iterator[Program]:
    """Gradients of reductions over one axis."""
    for shape, size in SIZES.items():
        for axis in range(len(size)):
            for kind in ("sum", "amax", "logsumexp", "norm", "softmax", "log_softmax"):
                function = {**KINDS, **OF_ONE_AXIS}[kind]

                def made(
                    size: tuple[int, ...] = size,
                    axis: int = axis,
                    function: Callable[..., Any] = function,
                ) -> Made:
                    x = place.batch(*size)
                    return differentiated(lambda x: function(x, dim=axis), x)

                yield Program(f"reductions/{kind}.{shape}.{axis}.f32.grad", "reductions", made)
