"""What a repro says of its culprit: that it passes without it, or that this was not seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CULPRIT = "culprit   "
SUSPECT = "suspect   "
PASSES = "It passes with the culprit switched off: "
NOT_SEEN = "It was not seen to pass with the suspect switched off: "


def passes_without(units: Sequence[str]) -> str:
    """Return the sentence of a repro about its culprits; empty if there are none."""
    return f"{PASSES}{' '.join(f'--off={unit}' for unit in units)}" if units else ""


def withdraw_claim(repro: Path) -> None:
    """Let a repro call its culprit a suspect, because no run of the repro passed without it."""
    text = repro.read_text()
    repro.write_text(text.replace(f"\n{CULPRIT}", f"\n{SUSPECT}", 1).replace(PASSES, NOT_SEEN, 1))
