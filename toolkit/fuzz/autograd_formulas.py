"""Eager's gradients under a dispatch mode, as every backend traces them.

Autograd has two formulas for some gradients. That of a product divides by the input, and so is NaN
for infinity. Where it is traced, all other factors are multiplied, which is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from tcdebug.minifier.judging.replay import Results


class Unchanged(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no annotation
    """Makes each call as it is."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **(kwargs or {}))


def traced_gradients(again: Callable[[], Results]) -> list[Any]:
    """Return the gradients of a run in eager with the formulas that tracing takes.

    The list is empty if the program does not run under a dispatch mode.
    """
    try:
        with Unchanged():  # type: ignore[no-untyped-call] # torch has no annotation
            return again().gradients
    except Exception:
        return []
