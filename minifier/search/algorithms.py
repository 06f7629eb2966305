"""The search algorithms. They are pure functions of a predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from tcdebug.minifier.cases.outcome import Resolution

Item = TypeVar("Item")

CHECKED_EACH_TIME = 3
"""Up to this many found elements, each new one is followed by a check whether they suffice."""
FEW = 4
"""Sets of up to this size are reduced by leaving out one element at a time."""


class TooManyNeeded(Exception):
    """More elements are needed than the caller has a use for."""


def first_bad(low: int, high: int, bad: Callable[[int], bool], guess: int | None = None) -> int:
    """Return an n in (low, high] with bad(n) and not bad(n - 1), given not bad(low) and bad(high).

    It asks about log2(high - low) times, first for `guess`. If `bad` is not monotone, n is one of
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
    """Return the n in [low, high) that passes and after which none is known to pass.

    It requires that `high` fails and that `high - 1` does not. The fault is among the steps from n
    to `high`, and it is step `high` alone only if n is `high - 1`. Returns None if neither
    `high - 1` nor `low` passes. Asks about log2(high - low) times if `high - 1` does not pass; see
    "skip" in `git bisect`.
    """
    if ask(high - 1) is Resolution.PASSES:
        return high - 1
    if ask(low) is not Resolution.PASSES:
        return None
    return first_bad(low, high - 1, lambda n: ask(n) is not Resolution.PASSES) - 1


def minimal_subset(
    items: Sequence[Item],
    bad: Callable[[Sequence[Item]], bool],
    most: int | None = None,
) -> list[Item]:
    """Return a bad subset from which no single element can be left out, given that all are bad.

    Raises TooManyNeeded as soon as more than `most` elements were found to be needed.

    It asks about each subset at most once, and about log2(len(items)) times for every element that
    is needed, or once per element if nearly all are. Elements that are likely needed should come
    first.

    The shortest bad prefix ends with an element that is needed. With that element kept, so does the
    shortest bad prefix of the elements before it. This repeats until the elements found are bad by
    themselves. The result is 1-minimal if every superset of a bad set is bad. If not, the last
    sweep makes it so.
    """
    asked: dict[frozenset[int], bool] = {}

    def answer(numbers: Sequence[int]) -> bool:
        key = frozenset(numbers)
        if key not in asked:
            asked[key] = bad([items[k] for k in sorted(key)])
        return asked[key]

    needed = _needed(len(items), answer, most) if len(items) > FEW else list(range(len(items)))
    before = None
    while needed != before:
        before = needed
        for number in before:
            others = [k for k in needed if k != number]
            if answer(others):
                needed = others
    return [items[k] for k in sorted(needed)]


def _needed(count: int, answer: Callable[[Sequence[int]], bool], most: int | None) -> list[int]:
    """Return elements that are bad together. Each was needed when it was found."""
    needed: list[int] = []
    rest = list(range(count))
    gap = float(count)
    guess: int | None = math.isqrt(count)
    while rest:
        bet = len(needed) <= CHECKED_EACH_TIME or len(rest) < gap
        if bet and answer(needed):
            break
        low = 0 if bet else -1
        length = first_bad(low, len(rest), lambda n: answer(needed + rest[:n]), guess)
        if length == 0:
            break
        if len(needed) == most:
            raise TooManyNeeded
        needed.append(rest[length - 1])
        del rest[length - 1 :]
        gap = (count - len(rest)) / len(needed)
        # if needed elements are dense, the next one is close
        guess = len(rest) - round(gap) if len(needed) >= CHECKED_EACH_TIME else None
    return needed
