"""The ladder of backends that torch brings: which of its layers a failure belongs to.

Each rung runs one layer less than the one above it. A layer is switched off like a unit, so the
same words work for a candidate, `--off` and a repro script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.minifier.cases.layer_names import STAND_INS
from tcdebug.minifier.cases.outcome import Kind, Outcome

AUTOGRAD = "layer.autograd"
DECOMPOSITIONS = "layer.decompositions"
AUTOGRAD_FAMILY = "autograd"
"""What the names of AOTAutograd's own units begin with."""

BELOW = {layer: STAND_INS[layer] for layer in reversed(STAND_INS)}
"""Layer -> the backend of torch that stands in for it and all above it, the last layer first."""

LAST = "layer.capture"
"""What is left when even the backend `eager` fails: Dynamo. It cannot be switched off."""


@dataclass(frozen=True)
class Rung:
    """What became of a case with a layer and all above it switched off."""

    layer: str
    backend: str
    outcome: Outcome


def rung(toggles: Toggles) -> str:
    """The backend that stands in for the layers that are off, empty where none is."""
    off = [backend for layer, backend in BELOW.items() if layer in toggles.off]
    return off[-1] if off else ""


def autograd_asked(toggles: Toggles) -> bool:
    """Whether compiles under these toggles ask about the units of AOTAutograd.

    They do where nothing but AOTAutograd compiles, and where toggles name one of these units.
    """
    named = (*toggles.off, *toggles.only, *toggles.first)
    return only_autograd(toggles) or any(belongs(name, AUTOGRAD_FAMILY) for name in named)


def only_autograd(toggles: Toggles) -> bool:
    """Whether AOTAutograd is the last layer that is on."""
    return rung(toggles) == BELOW[DECOMPOSITIONS]


def climb_down(ask: Callable[[Toggles, str], Outcome], base: Toggles) -> tuple[str, list[Rung]]:
    """The layer without which it passes, and what was seen: layers go off from the top.

    A rung that fails in another way is no pass: one fault may show itself differently there. See
    `in_doubt` for what that leaves open.
    """
    seen: list[Rung] = []
    for layer, backend in BELOW.items():
        outcome = ask(base.without(off=[layer]), f"{backend} instead")
        seen.append(Rung(layer, backend, outcome))
        if outcome.kind is Kind.OK:
            return layer, seen
    return LAST, seen


def in_doubt(failure: Outcome, rungs: Sequence[Rung]) -> list[str]:
    """The layers between the last rung that fails alike and the one that passes.

    More than one where rungs between these fail in another way: any of these layers may be at
    fault. Failures of one kind are alike, for each backend trips over a fault below it somewhere
    else; a wrong result and an exception are not.
    """
    layers = [*BELOW, LAST]
    same = [k for k, rung in enumerate(rungs, 1) if rung.outcome.kind is failure.kind]
    passes = bool(rungs) and rungs[-1].outcome.kind is Kind.OK
    return layers[same[-1] if same else 0 : len(rungs) if passes else None]
