"""Random numbers of one run in another: a float64 run draws others than the run it judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

Result = TypeVar("Result")

DRAWS = frozenset(
    f"aten::{name}"
    for name in (
        *("bernoulli", "bernoulli_", "binomial", "cauchy_", "exponential_", "geometric_"),
        *("log_normal_", "multinomial", "normal_", "poisson", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "random_", "randperm", "uniform_"),
    )
)
"""Operators whose result holds nothing but what was drawn; `normal` adds a mean to it."""


class Unrepeatable(Exception):
    """What an operator draws cannot be told from what it makes of it."""


def with_equal_draws(
    narrow: Callable[[], object], wide: Callable[[], Result], *, seed: int
) -> Result:
    """What `wide` returns when it draws the numbers that `narrow` draws, one after the other.

    Both seed torch with `seed` when they begin. Raises Unrepeatable, and what the two raise.
    """
    narrow()
    if all(_state(torch.Generator(g.device).manual_seed(seed)) == _state(g) for g in _generators()):
        return wide()  # not as below: where torch compiles control flow, no mode may be in force
    drawn: list[torch.Tensor] = []
    with _Draws(lambda made: drawn.append(made.detach().clone())):
        narrow()
    left = iter(drawn)
    with _Draws(lambda made: made.detach().copy_(next(left))):
        result = wide()
    return result


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's has no annotations
    """Calls `each` with every tensor of random numbers, before anything reads it."""

    supports_higher_order_operators = True

    def __init__(self, each: Callable[[torch.Tensor], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's has no annotations
        self.each = each

    def __torch_dispatch__(
        self, func: OpOverload | HigherOrderOperator, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            return _without_draws(func, args, kwargs or {})
        made = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and not _certain(func, args, kwargs):
            if not isinstance(made, torch.Tensor) or func._schema.name not in DRAWS:
                raise Unrepeatable(f"{func} makes more of its random numbers than them")
            self.each(made)
        return made


def _without_draws(
    func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a higher-order operator returns, whose operators this mode is not told of."""
    before = [_state(g) for g in _generators()]
    made = func(*args, **kwargs)
    if before != [_state(g) for g in _generators()]:
        raise Unrepeatable(f"{func} draws random numbers")
    return made


def _generators() -> list[torch.Generator]:
    """The CPU's, and those of GPUs that are in use."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # torch has no annotation
    return [torch.default_generator, *(torch.cuda.default_generators if in_use else ())]


def _state(generator: torch.Generator) -> bytes:
    return bytes(generator.get_state().tolist())


def _certain(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Whether a call that could draw draws nothing: attention without dropout."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else (kwargs or {}).get("dropout_p")
            return (argument.default_value if given is None else given) == 0
    return False
