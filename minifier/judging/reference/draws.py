"""Makes one run draw the random numbers of another: a float64 run would draw different ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from tcdebug.minifier.targets.drawing import DRAWS

Result = TypeVar("Result")

DROPOUT = "aten::native_dropout"
"""Its mask consists of drawn numbers, and its other result is computed from them."""


class Unrepeatable(Exception):
    """The drawn numbers cannot be separated from what an operator computes from them."""


def with_equal_draws(
    narrow: Callable[[], object], wide: Callable[[], Result], *, seed: int
) -> Result:
    """Run `wide` with the random numbers that `narrow` draws, in the same order.

    Both must seed torch with `seed` at their start. Raises Unrepeatable, and what the two raise.
    """
    narrow()
    if not drawn_since(seed):
        return wide()  # without a dispatch mode, which would break compiled control flow
    drawn: list[torch.Tensor] = []
    with _Draws(lambda made: drawn.append(made.detach().clone())):
        narrow()
    left = iter(drawn)
    with _Draws(lambda made: made.detach().copy_(next(left))):
        result = wide()
    return result


def drawn_since(seed: int) -> bool:
    """Return whether random numbers were drawn since torch was seeded with `seed`."""
    return any(
        _state(torch.Generator(g.device).manual_seed(seed)) != _state(g) for g in _generators()
    )


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no annotation
    """Calls `each` with every tensor of random numbers before anything reads it."""

    supports_higher_order_operators = True

    def __init__(self, each: Callable[[torch.Tensor], object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no annotation
        self.each = each

    def __torch_dispatch__(
        self, func: OpOverload | HigherOrderOperator, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            return _without_draws(func, args, kwargs or {})
        made = func(*args, **(kwargs or {}))
        if func._schema.name == DROPOUT:
            if args[2] is False:  # it is not training
                return made
            self.each(made[1])
            return _dropped(args, made[1]), made[1]
        if torch.Tag.nondeterministic_seeded in func.tags and not draws_nothing(
            func, args, kwargs or {}
        ):
            if not isinstance(made, torch.Tensor) or func._schema.name not in DRAWS:
                raise Unrepeatable(f"{func} returns more than its random numbers")
            self.each(made)
        return made


def _dropped(args: tuple[Any, ...], mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask as dropout does. If everything is dropped, the scale is not infinite."""
    values, probability = args[0], float(args[1])
    scale = 0.0 if probability == 1 else 1 / (1 - probability)
    return torch.as_tensor(values * mask * scale)


def _without_draws(func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a higher-order operator, whose inner operators this mode does not see."""
    before = [_state(g) for g in _generators()]
    made = func(*args, **kwargs)
    if before != [_state(g) for g in _generators()]:
        raise Unrepeatable(f"{func} draws random numbers")
    return made


def _generators() -> list[torch.Generator]:
    """Return the generators of the CPU and of GPUs that are in use."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # torch has no annotation
    return [torch.default_generator, *(torch.cuda.default_generators if in_use else ())]


def _state(generator: torch.Generator) -> bytes:
    return bytes(generator.get_state().tolist())


def draws_nothing(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call that could draw numbers does not: attention without dropout."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p")
            return (argument.default_value if given is None else given) == 0
    return False
