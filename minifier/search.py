"""The two searches that everything here is done with. Pure functions of a predicate; no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def first_bad(low: int, high: int, bad: Callable[[int], bool]) -> int:
    """An n in (low, high] with bad(n) and not bad(n - 1), given not bad(low) and bad(high).

    Asks about log2(high - low) times. Where `bad` is not monotone it is one of the boundaries.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if bad(middle):
            high = middle
        else:
            low = middle
    return high


def minimal_subset(items: Sequence[Item], bad: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset that is bad and of which no element can be left out, given that all are bad.

    Delta debugging (Zeller, Hildebrandt 2002) by complements: drop chunks, from the back, halving
    them when none can be dropped. Asks for no subset twice; the result is 1-minimal.
    """
    kept = list(items)
    asked: dict[tuple[int, ...], bool] = {}
    numbers = {id(item): k for k, item in enumerate(kept)}

    def answer(candidate: list[Item]) -> bool:
        key = tuple(numbers[id(item)] for item in candidate)
        if key not in asked:
            asked[key] = bad(candidate)
        return asked[key]

    size = max(1, len(kept) // 2)
    while kept:
        dropped = False
        end = len(kept)
        while end > 0:
            start = max(0, end - size)
            candidate = kept[:start] + kept[end:]
            if answer(candidate):
                kept = candidate
                dropped = True
            end = start
        if size > 1:
            size = max(1, min(size // 2, len(kept) // 2))
        elif not dropped:
            break
    return kept
