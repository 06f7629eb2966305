"""Decides whether rounding alone explains a difference, by a float64 run and runs with noise.

Noise is added to the floats that a program gets, and to those that it computes from integers.

A program is chaotic if noise of a few units in the last place changes its result as much as
compiling did: after a comparison of close numbers, a floor, or an argmax of equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tcdebug.minifier.cases.case import CaseInput, clone_values, tensors_of
from tcdebug.minifier.cases.lineage import Change
from tcdebug.minifier.judging.reference.draws import with_equal_draws
from tcdebug.minifier.judging.replay import SEED, Results, run
from tcdebug.strategies.program import Program

RUNS = 3
"""Number of runs with noise."""
TIMES = 16.0
"""A difference is explained up to this many times the effect of the noise."""
JUMP = 0.05
"""A value has jumped if it changes by this fraction."""
EPSILONS = (("bfloat16", 2.0**-7), ("float16", 2.0**-9), ("", 2.0**-21))
"""The narrowest dtype in a program, and the noise for its inputs."""

WIDE = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass(frozen=True)
class NoiseArguments:
    """The arguments of a call."""

    inputs: tuple[CaseInput, ...]

    @classmethod
    def of(cls, values: Sequence[torch.Tensor]) -> NoiseArguments:
        """Return the values as inputs."""
        return cls(tuple(CaseInput(f"a{k}", v) for k, v in enumerate(values)))

    def values(self) -> list[Any]:
        """Return the values themselves."""
        return [i.value for i in self.inputs]

    def changed(self, change: Change) -> NoiseArguments:
        """Return the same tensors over changed memory. Sizes, strides and sharing stay the same."""
        return NoiseArguments.of(clone_values(self.values(), change))


class OfIntegers(TorchFunctionMode):
    """Adds noise to floats computed from integers alone, since these are rounded too."""

    def __init__(self, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        self.scale = scale
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and add noise to results that are rounded for the first time."""
        made = func(*args, **(kwargs or {}))
        read = list(tensors_of([args, kwargs]))
        if not isinstance(made, torch.Tensor) or not made.is_floating_point() or not read:
            return made
        if any(t.is_floating_point() or t.is_complex() for t in read):
            return made
        return _scaled(made, self.scale, self.generator)


class Ties(TorchFunctionMode):
    """Treats floats that are almost equal, or almost zero, as equal or zero in decisions.

    Noise separates equal values. If eager's rounding has separated them, noise cannot join them.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call. If it does not compute floats from floats, tie its arguments first."""
        made = func(*args, **(kwargs or {}))
        whole = isinstance(made, torch.Tensor) and not (
            made.is_floating_point() or made.is_complex()
        )
        read = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        if not whole or not read or any(a is made for a in args):
            return made
        return func(*(self._tied(a, read) for a in args), **(kwargs or {}))

    def _tied(self, value: Any, read: Sequence[torch.Tensor]) -> Any:
        if not any(value is r for r in read) or not value.numel():
            return value
        close = self.scale * value.abs().nan_to_num(0, 0, 0).max()
        tied = torch.where(value.abs() <= close, torch.zeros_like(value), value)
        if value is read[0] or read[0].shape != value.shape or read[0].dtype != value.dtype:
            return tied
        return torch.where((value - read[0]).abs() <= close, read[0], value)


@dataclass
class Noise:
    """Eager's results for wider or slightly different inputs of a program."""

    program: Program
    eager: torch.nn.Module
    wide: Callable[[], torch.nn.Module]
    arguments: NoiseArguments

    @cached_property
    def reference(self) -> Results | None:
        """A float64 run with eager's random numbers; None if there is none."""
        try:
            return with_equal_draws(
                lambda: self._run(self.eager, torch.clone),
                lambda: self._run(self.wide(), _widened),
                seed=SEED,
            )
        except Exception:
            return None

    @cached_property
    def noisy(self) -> list[Results]:
        """Runs with noise in every float and with flipped signs of zeros, and one with ties."""
        text = self.program.source()
        scale = next(e for name, e in EPSILONS if name in text)
        found: list[Results] = []
        for seed in range(RUNS):
            generator = torch.Generator().manual_seed(seed)

            def noised(memory: torch.Tensor, generator: torch.Generator = generator) -> Any:
                return _noised(memory, scale, generator)

            try:
                with OfIntegers(scale, generator):
                    found.append(self._run(self.eager, noised))
            except Exception:
                continue
        with suppress(Exception), Ties(scale):
            found.append(self._run(self.eager, torch.clone))
        return found

    def _run(self, module: torch.nn.Module, change: Change) -> Results:
        with torch.compiler.set_stance(self.program.eager_stance):
            return run(module, self.arguments.changed(change))

    def explains(self, group: str, place: int, eager: Any, compiled: Any) -> bool:
        """Return whether two tensors differ by no more than the effect of noise."""
        if not isinstance(eager, torch.Tensor) or eager.shape != compiled.shape:
            return False
        others = [getattr(results, group) for results in self.noisy]
        if self.reference is not None:
            others.append(getattr(self.reference, group))
        spread = _last_place(eager)
        for values in others:
            if place >= len(values) or values[place] is None:
                continue
            if values[place].shape != eager.shape:
                return True
            spread = torch.maximum(spread, _distance(values[place], eager))
        left = int((_distance(compiled, eager) > TIMES * spread).sum())
        return left <= TIMES * int(_jumped(spread, eager).sum())


def _jumped(spread: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """Return where noise had a disproportionate effect, because a decision changed.

    Which of many close decisions change is random, so the others are explained as well.
    """
    if eager.is_complex():
        eager = eager.abs()
    return spread > JUMP * eager.double().abs().nan_to_num(posinf=1.0) + (spread > 0) * 1e-30


def _last_place(values: torch.Tensor) -> torch.Tensor:
    """One unit in the last place of each number, since any result is itself rounded."""
    if not values.is_floating_point():
        return torch.zeros(values.shape, dtype=torch.float64, device=values.device)
    finite = values.detach().double().abs().nan_to_num(posinf=0.0)
    return finite * torch.finfo(values.dtype).eps


def _distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the distances between elements; infinite if only one is a number."""
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
        return _distance(a, b).amax(-1)
    a, b = a.double(), b.double()
    apart = (a - b).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, torch.where(apart.isnan(), torch.inf, apart))


def _widened(memory: torch.Tensor) -> torch.Tensor:
    return memory.to(WIDE.get(memory.dtype, memory.dtype), copy=True)


def _noised(memory: torch.Tensor, scale: float, generator: torch.Generator) -> torch.Tensor:
    """Each number changed slightly, and zeros with the opposite sign."""
    if not memory.is_floating_point():
        return memory.clone()
    noisy = _scaled(memory, scale, generator)
    return torch.where(memory == 0, -memory, noisy)


def _scaled(values: torch.Tensor, scale: float, generator: torch.Generator) -> torch.Tensor:
    noise = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (values.double() * (1 + scale * noise.to(values.device))).to(values.dtype)
