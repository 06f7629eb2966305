"""The ladder of torch's own backends, which shows the layer that a failure belongs to.

Each rung runs one layer less than the rung above it. A layer is switched off like a unit, so the
same names work for a candidate, for `--off` and for a repro script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.minifier.cases.layer_names import (
    AOTINDUCTOR,
    AOTINDUCTOR_BACKEND,
    DECOMPOSITIONS,
    STAND_INS,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome

AUTOGRAD_FAMILY = "autograd"
"""The prefix of the names of AOTAutograd's own units."""

BELOW = {layer: STAND_INS[layer] for layer in reversed(STAND_INS)}
"""Layer -> the backend of torch that replaces it and all layers above it, the last layer first."""

BELOW_AOTINDUCTOR = {AOTINDUCTOR: "inductor", **BELOW}
"""The same for AOTInductor, which is a layer on top of inductor."""

LAST = "layer.capture"
"""The layer at fault if even the backend `eager` fails: Dynamo. It cannot be switched off."""


@dataclass(frozen=True)
class Rung:
    """The outcome of a case with a layer and all layers above it switched off."""

    layer: str
    backend: str
    outcome: Outcome


def rung(toggles: Toggles) -> str:
    """Return the backend that replaces the layers that are off; empty if none is off."""
    off = [backend for layer, backend in BELOW_AOTINDUCTOR.items() if layer in toggles.off]
    return off[-1] if off else ""


def autograd_asked(toggles: Toggles) -> bool:
    """Return whether compiles under these toggles consult the units of AOTAutograd.

    They do if nothing but AOTAutograd compiles, and if the toggles name one of these units.
    """
    named = (*toggles.off, *toggles.only, *toggles.first)
    return only_autograd(toggles) or any(belongs(name, AUTOGRAD_FAMILY) for name in named)


def only_autograd(toggles: Toggles) -> bool:
    """Return whether AOTAutograd is the last layer that is on."""
    return rung(toggles) == BELOW[DECOMPOSITIONS]


def below(backend: str) -> Mapping[str, str]:
    """Return the layers of a backend, and the backends that replace them."""
    return BELOW_AOTINDUCTOR if backend == AOTINDUCTOR_BACKEND else BELOW


def climb_down(
    ask: Callable[[Toggles, str], Outcome], base: Toggles, layers: Mapping[str, str] = BELOW
) -> tuple[str, list[Rung]]:
    """Switch layers off from the top. Return the layer that makes it pass if off, and all rungs.

    A rung that fails in a different way is not a pass, because one fault may cause another failure
    there. See `in_doubt` for the layers that remain possible.
    """
    seen: list[Rung] = []
    for layer, backend in layers.items():
        outcome = ask(base.without(off=[layer]), f"{backend} instead")
        seen.append(Rung(layer, backend, outcome))
        if outcome.kind is Kind.OK:
            return layer, seen
    return LAST, seen


def in_doubt(
    failure: Outcome, rungs: Sequence[Rung], below: Mapping[str, str] = BELOW
) -> list[str]:
    """Return the layers between the last rung that fails in the same way and the one that passes.

    There is more than one if rungs in between fail in a different way. Any of these layers may be
    at fault. Failures of the same kind count as the same, because a single fault makes each backend
    above it fail at a different place. A wrong result and an exception do not.
    """
    layers = [*below, LAST]
    same = [k for k, rung in enumerate(rungs, 1) if rung.outcome.kind is failure.kind]
    passes = bool(rungs) and rungs[-1].outcome.kind is Kind.OK
    return layers[same[-1] if same else 0 : len(rungs) if passes else None]
