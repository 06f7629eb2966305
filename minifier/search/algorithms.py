"""The searches that everything here is done with. They are pure functions of a predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from tcdebug.minifier.cases.outcome import Resolution

Item = TypeVar("Item")

BETS = 3
"""Until so many elements are found, each may well be the last one."""
FEW = 4
"""So many elements are left out one by one."""


def first_bad(low: int, high: int, bad: Callable[[int], bool], guess: int | None = None) -> int:
    """An n in (low, high] with bad(n) and not bad(n - 1), given not bad(low) and bad(high).

    Asks about log2(high - low) times, first for `guess`. Where `bad` is not monotone it is one of
    the boundaries.
    """
    while high - low > 1:
        middle = guess if guess is not None and low < guess < high else (low + high) // 2
        guess = None
        if bad(middle):
            high = middle
        else:
            low = middle
    return high


def passing_before(low: int, high: int, ask: Callable[[int], Resolution]) -> int | None:
    """The n in [low, high) that passes and after which nothing up to `high` is known to pass.

    Given that `high` fails and that `high - 1` does not. What makes the difference between n and
    `high` is among the steps from n to `high`; it is step `high` alone only if n is `high - 1`.
    None where neither `high - 1` nor `low` passes. Asks about log2(high - low) times where
    `high - 1` is unresolved; see "skip" in `git bisect`.
    """
    if ask(high - 1) is Resolution.PASSES:
        return high - 1
    if ask(low) is not Resolution.PASSES:
        return None
    return first_bad(low, high - 1, lambda n: ask(n) is not Resolution.PASSES) - 1


def minimal_subset(items: Sequence[Item], bad: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset that is bad and of which no element can be left out, given that all are bad.

    Asks for no subset twice, and about log2(len(items)) times for every element that is needed, or
    once where nearly all are. Elements that are likely needed should come first.

    The shortest bad prefix ends with an element that is needed; with that one kept, so does the
    shortest bad prefix of what is before it, until the elements found are bad by themselves. What
    was found so is 1-minimal if every superset of a bad set is bad. If not, the last sweep sees to
    it.
    """
    asked: dict[frozenset[int], bool] = {}

    def answer(numbers: Sequence[int]) -> bool:
        key = frozenset(numbers)
        if key not in asked:
            asked[key] = bad([items[k] for k in sorted(key)])
        return asked[key]

    needed = _needed(len(items), answer) if len(items) > FEW else list(range(len(items)))
    before = None
    while needed != before:
        before = needed
        for number in before:
            others = [k for k in needed if k != number]
            if answer(others):
                needed = others
    return [items[k] for k in sorted(needed)]


def _needed(count: int, answer: Callable[[Sequence[int]], bool]) -> list[int]:
    """Elements that are bad together, each needed when it was found."""
    needed: list[int] = []
    rest = list(range(count))
    gap = float(count)
    guess: int | None = math.isqrt(count)
    while rest:
        bet = len(needed) <= BETS or len(rest) < gap
        if bet and answer(needed):
            break
        low = 0 if bet else -1
        length = first_bad(low, len(rest), lambda n: answer(needed + rest[:n]), guess)
        if length == 0:
            break
        needed.append(rest[length - 1])
        del rest[length - 1 :]
        gap = (count - len(rest)) / len(needed)
        # where the needed are dense, the next one is near
        guess = len(rest) - round(gap) if len(needed) >= BETS else None
    return needed
