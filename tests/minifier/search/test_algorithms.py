"""The search algorithms: what they find, and how often they ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.minifier.cases.outcome import Resolution
from tcdebug.minifier.search.algorithms import (
    TooManyNeeded,
    first_bad,
    minimal_subset,
    passing_before,
)

PROPERTY = property_settings(100)


class Asked:
    """A predicate that counts its questions and refuses to be asked the same one twice."""

    def __init__(self, bad: Callable[[frozenset[int]], bool]) -> None:
        self.bad = bad
        self.subsets: list[frozenset[int]] = []

    def __call__(self, subset: Sequence[int]) -> bool:
        key = frozenset(subset)
        assert len(key) == len(subset), "an element twice"
        assert key not in self.subsets, f"{sorted(key)} is asked for again"
        self.subsets.append(key)
        return self.bad(key)


def test_first_bad_of_seven_is_the_fifth_after_three_questions() -> None:
    asked: list[int] = []

    def bad(n: int) -> bool:
        asked.append(n)
        return n >= 5

    assert first_bad(0, 7, bad) == 5
    assert asked == [3, 5, 4]


def test_a_range_of_one_needs_no_run() -> None:
    def never(n: int) -> bool:
        raise AssertionError(n)

    assert first_bad(3, 4, never) == 4


@PROPERTY
@given(st.integers(0, 1000), st.integers(1, 100_000), st.data())
def test_first_bad_finds_the_planted_step_in_log2_questions(
    low: int, length: int, data: st.DataObject
) -> None:
    planted = data.draw(st.integers(low + 1, low + length))
    asked: list[int] = []

    def bad(n: int) -> bool:
        asked.append(n)
        return n >= planted

    assert first_bad(low, low + length, bad) == planted
    assert len(asked) <= (length - 1).bit_length()
    assert len(set(asked)) == len(asked)
    assert all(low < n < low + length for n in asked)


@PROPERTY
@given(st.lists(st.booleans(), max_size=60))
def test_first_bad_ends_at_a_boundary_where_bad_comes_and_goes(middle: list[bool]) -> None:
    answers = [False, *middle, True]
    found = first_bad(0, len(answers) - 1, lambda n: answers[n])
    assert answers[found]
    assert not answers[found - 1]


def test_the_guessed_step_is_tested_first() -> None:
    asked: list[int] = []

    def bad(n: int) -> bool:
        asked.append(n)
        return n >= 30

    assert first_bad(0, 64, bad, guess=60) == 30
    assert asked == [60, 30, 15, 22, 26, 28, 29]


def test_one_of_eight_is_the_end_of_the_shortest_bad_prefix() -> None:
    asked = Asked(lambda subset: 2 in subset)
    assert minimal_subset(range(8), asked) == [2]
    assert [sorted(s) for s in asked.subsets] == [
        [],
        [0, 1],
        [0, 1, 2, 3, 4],
        [0, 1, 2],
        [2],
    ]


def test_the_first_elements_are_tried_first() -> None:
    asked = Asked(lambda subset: 7 in subset)
    assert minimal_subset(range(1000), asked) == [7]
    assert [len(s) for s in asked.subsets[:4]] == [0, 31, 15, 7]
    assert len(asked.subsets) == 8


def test_if_all_are_needed_each_is_left_out_once() -> None:
    asked = Asked(lambda subset: len(subset) == 100)
    assert minimal_subset(range(100), asked) == list(range(100))
    assert len(asked.subsets) <= 130


def test_a_search_ends_at_the_first_element_beyond_the_limit() -> None:
    asked = Asked(lambda subset: set(range(50)) <= subset)
    with pytest.raises(TooManyNeeded):
        minimal_subset(range(100), asked, most=5)
    assert len(asked.subsets) <= 45
    asked = Asked(lambda subset: {3, 30, 60} <= subset)
    assert minimal_subset(range(100), asked, most=3) == [3, 30, 60]


def test_each_of_a_few_is_left_out_in_turn() -> None:
    asked = Asked(lambda subset: {0, 2} <= subset)
    assert minimal_subset(range(3), asked) == [0, 2]
    assert [sorted(s) for s in asked.subsets] == [[1, 2], [0, 2], [0], [2]]


def test_nothing_remains_if_nothing_is_needed() -> None:
    asked = Asked(lambda subset: True)
    assert minimal_subset([1, 2, 3], asked) == []
    assert minimal_subset([], asked) == []


@PROPERTY
@given(st.integers(2, 200), st.data())
def test_a_planted_pair_is_found(size: int, data: st.DataObject) -> None:
    pair = frozenset(
        data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    )
    asked = Asked(lambda subset: pair <= subset)
    assert minimal_subset(range(size), asked) == sorted(pair)
    assert len(asked.subsets) <= most_questions(size, culprits=2)


@PROPERTY
@given(st.integers(1, 300), st.data())
def test_every_planted_set_is_found_in_few_questions(size: int, data: st.DataObject) -> None:
    planted = frozenset(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=6)))
    asked = Asked(lambda subset: planted <= subset)
    assert minimal_subset(range(size), asked) == sorted(planted)
    assert len(asked.subsets) <= most_questions(size, len(planted))


def most_questions(size: int, culprits: int) -> int:
    """Count per culprit: whether those found suffice, a search for it, and one question without it.

    A search asks up to two more questions for the guess with which it starts.
    """
    return culprits * (size.bit_length() + 4) + 3


@PROPERTY
@given(
    st.integers(1, 24),
    st.lists(st.frozensets(st.integers(0, 23), min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_one_of_several_planted_sets_remains(size: int, planted: list[frozenset[int]]) -> None:
    inside = [p for p in planted if max(p) < size]
    assume(inside)
    found = frozenset(minimal_subset(range(size), Asked(lambda s: any(p <= s for p in inside))))
    assert found in inside
    assert not any(p < found for p in inside)


@PROPERTY
@given(st.integers(1, 9), st.data())
def test_no_element_can_be_left_out_whatever_the_predicate(size: int, data: st.DataObject) -> None:
    everything = frozenset(range(size))
    bad_ones = data.draw(st.sets(st.frozensets(st.integers(0, size - 1)), max_size=60))
    asked = Asked(lambda subset: subset == everything or subset in bad_ones)
    found = frozenset(minimal_subset(range(size), asked))
    assert found == everything or found in bad_ones
    assert not any(found - {element} in bad_ones for element in found)
    assert len(asked.subsets) <= 2 * size + size * (size + 1) // 2


@PROPERTY
@given(st.integers(1, 40), st.data())
def test_the_order_is_kept(size: int, data: st.DataObject) -> None:
    items = data.draw(st.permutations(range(size)))
    planted = data.draw(st.sets(st.sampled_from(items)))
    found = minimal_subset(items, Asked(lambda subset: planted <= subset))
    assert found == [i for i in items if i in planted]


def test_elements_need_not_be_hashable() -> None:
    items = [["a"], ["b"], ["c"]]
    assert minimal_subset(items, lambda kept: ["b"] in kept) == [["b"]]


FAILS, PASSES, UNRESOLVED = Resolution.FAILS, Resolution.PASSES, Resolution.UNRESOLVED


def test_unresolved_steps_between_a_pass_and_a_failure_are_skipped() -> None:
    answers = [PASSES, PASSES, UNRESOLVED, UNRESOLVED, UNRESOLVED, FAILS, FAILS]
    assert passing_before(0, 5, answers.__getitem__) == 1


def test_if_nothing_is_unresolved_one_question_suffices() -> None:
    asked: list[int] = []

    def ask(n: int) -> Resolution:
        asked.append(n)
        return FAILS if n >= 90 else PASSES

    assert passing_before(0, 90, ask) == 89
    assert asked == [89]


def test_if_not_even_the_first_passes_there_is_no_bound() -> None:
    assert passing_before(0, 3, [UNRESOLVED, PASSES, UNRESOLVED, FAILS].__getitem__) is None


@PROPERTY
@given(st.lists(st.sampled_from([PASSES, UNRESOLVED]), max_size=200))
def test_the_bound_passes_and_the_next_step_does_not(answers: list[Resolution]) -> None:
    answers = [PASSES, *answers, FAILS]
    asked: list[int] = []

    def ask(n: int) -> Resolution:
        asked.append(n)
        return answers[n]

    high = len(answers) - 1
    found = passing_before(0, high, ask)
    assert found is not None
    assert answers[found] is PASSES
    assert answers[found + 1] is not PASSES
    assert len(asked) <= 2 + high.bit_length()
