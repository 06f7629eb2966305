"""A program of the sweep: how to make it, and how to call it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Place:
    """Where a program runs, and how large its tensors are."""

    device: str
    scale: int = 1
    """What the first size of most inputs is multiplied by."""
    dtype: torch.dtype = torch.float32

    def of(self, dtype: torch.dtype) -> Place:
        """The same place, for tensors of another dtype."""
        return replace(self, dtype=dtype)

    def scaled(self, size: int) -> int:
        """A size times the scale."""
        return size * self.scale

    def batch(self, *size: int) -> Tensor:
        """Normally distributed numbers, of which the first size is scaled."""
        return self.normal(self.scaled(size[0]), *size[1:])

    def normal(self, *size: int) -> Tensor:
        """Normally distributed numbers."""
        return torch.randn(size, device=self.device, dtype=self.dtype)

    def integers(self, below: int, *size: int) -> Tensor:
        """Integers from 0 to a bound. The first size is scaled."""
        size = (self.scaled(size[0]), *size[1:])
        return torch.randint(0, below, size, device=self.device)

    def trained(self, module: nn.Module) -> nn.Module:
        """A module in its place, in training mode."""
        return module.to(self.device, self.dtype).train()


@dataclass(frozen=True)
class Made:
    """A function with its inputs. `leaves` are what its outputs are differentiated by, if any.

    `updated` are tensors that it updates. Each version of such a program is made again.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    leaves: tuple[Tensor, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    updated: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Program:
    """A program by name. `make` raises any exception if the installed torch cannot run it."""

    name: str
    family: str
    make: Callable[[], Made]


def tensors(value: Any) -> list[Tensor]:
    """The tensors in nested containers."""
    return [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor)]


def differentiated(function: Callable[..., Any], *inputs: Any) -> Made:
    """A function with the gradients of its inputs of floats, and of its own parameters."""
    given = [t for t in tensors(inputs) if t.is_floating_point()]
    leaves = [t.requires_grad_() for t in given]
    if isinstance(function, nn.Module):
        leaves += [p for p in function.parameters() if p.requires_grad]
    return Made(function, inputs, tuple(leaves))


def caller(made: Made, function: Callable[..., Any]) -> Callable[[], Any]:
    """A call of a version of the program, with the gradients that it needs.

    The gradients of its outputs are made by the first call. They differ along each row, because
    those of a layer norm would otherwise be zero, and what is compared would be rounding errors.
    """
    keywords = dict(made.keywords)
    if not made.leaves:

        def forward() -> Any:
            with torch.no_grad():
                return function(*made.inputs, **keywords)

        return forward
    upstream: list[Tensor] = []

    def both() -> Any:
        results = [t for t in tensors(function(*made.inputs, **keywords)) if t.requires_grad]
        if not upstream:
            upstream.extend(map(_slope, results))
        return results, torch.autograd.grad(results, made.leaves, upstream, allow_unused=True)

    return both


def _slope(t: Tensor) -> Tensor:
    """Numbers from 0.5 to 1.5 in the layout of a tensor."""
    numbers = torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape)
    return torch.empty_like(t).copy_(numbers).detach()


def in_both_directions(
    family: str,
    names: Iterable[str],
    make: Callable[[str, Place, bool], Made],
    place: Place,
) -> Iterator[Program]:
    """Each program in all `DTYPES`, forward and with gradients.

    `make` takes the name, the place, and whether gradients are wanted.
    """
    for name in names:
        for short, dtype in DTYPES.items():
            there = place.of(dtype)
            for gradients in (False, True):
                suffix = f"{short}.grad" if gradients else short

                def made(
                    name: str = name, place: Place = there, gradients: bool = gradients
                ) -> Made:
                    return make(name, place, gradients)

                yield Program(f"{family}/{name}.{suffix}", family, made)


Inputs = Callable[[Place], tuple[Tensor, ...]]
Modules = Mapping[str, tuple[Callable[[], nn.Module], Inputs]]
"""Name -> how to build a module, and its inputs."""


def of_modules(family: str, modules: Modules, place: Place) -> Iterator[Program]:
    """Each module in training mode, in all `DTYPES`, forward and with gradients."""

    def make(name: str, there: Place, gradients: bool) -> Made:
        build, inputs = modules[name]
        module, given = there.trained(build()), inputs(there)
        return differentiated(module, *given) if gradients else Made(module, given)

    yield from in_both_directions(family, modules, make, place)
