"""Compares what a compiled call leaves behind with what the same call leaves behind in eager."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcdebug.minifier.reuse.differences import differences
from tcdebug.minifier.reuse.reachable import reachable

NOT_COMPARED = "results are not compared with eager, because the call draws random numbers"


def compare_with_eager(prepared: Callable[[bool], Callable[[], Mapping[str, Any]]]) -> str:
    """Make a call in eager and compiled, and compare them. Raises AssertionError if they differ.

    `prepared` sets the random state before the call. The call returns named values. Everything that
    they refer to is compared; tensors may differ by rounding. Compiled code may draw different
    random numbers from eager, so a call that draws any is made without a comparison, and the result
    says so. Otherwise the result is empty.
    """
    call = prepared(False)
    before = _random_states()
    eager = call()
    after = _random_states()
    drawn = any(after[name] != state for name, state in before.items())
    compiled = prepared(True)()
    if drawn:
        return NOT_COMPARED
    found = next(differences(reachable(dict(eager)), reachable(dict(compiled))), None)
    if found is not None:
        raise AssertionError(f"compiled, {found.path} is different from eager: {found.detail}")
    return ""


def _random_states() -> dict[str, bytes]:
    """Return the states of all random number generators that exist."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state().tolist()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        states["cuda"] = [state.tolist() for state in torch.cuda.get_rng_state_all()]
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return {name: pickle.dumps(state) for name, state in states.items()}
