"""Suggests names of units for one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NEAR = 3


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most similar to a name, or that have a similar part."""
    names = list(dict.fromkeys(known))
    families = list(dict.fromkeys(n.partition(".")[0] for n in names))
    family, dot, _ = name.partition(".")
    candidates = [n for n in names if n.startswith(f"{family}.")] or names
    found = difflib.get_close_matches(name, candidates if dot else families, MOST_NEAR)
    if not found and not dot:
        found = difflib.get_close_matches(name, candidates, MOST_NEAR)
    tails = {n.rpartition(".")[2]: n for n in reversed(names)}
    return found or [tails[t] for t in difflib.get_close_matches(name, tails, MOST_NEAR)]
