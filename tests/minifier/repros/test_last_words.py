"""Whether two scripts that end with the same exit status fail in the same way."""

from __future__ import annotations

import pytest

from tcdebug.minifier.repros.last_words import last_words
from tcdebug.minifier.subjects.script import outcome_of

CAUGHT = """Traceback (most recent call last):
  File "a.py", line 3, in f
    return x[5]
IndexError: index 5 is out of range
"""
CHAINED = (
    CAUGHT
    + """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 9, in main
    raise RuntimeError("step failed")
RuntimeError: step failed
"""
)
UNITTEST = """F.
======================================================================
FAIL: test_sum (__main__.Sums.test_sum)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "a.py", line 9, in test_sum
    self.assertEqual(a, b)
AssertionError: 3.0 != 4.0

----------------------------------------------------------------------
Ran 2 tests in 1.312s
"""
PYTEST = """>       assert out == 3
E       assert 4 == 3
FAILED test_sums.py::test_sum - assert 4 == 3
=== 1 failed, 1 passed in 2.10s ===
"""
LOGGED = """difference 0.25 in 3 of 7 elements
W1123 12:00:00.1 8 torch/_inductor/utils.py:1] not enough SMs
a.py:3: UserWarning: old
  warnings.warn("old")
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        (CAUGHT, "IndexError: index # is out of range"),
        (CHAINED, "RuntimeError: step failed"),
        (UNITTEST, "AssertionError: # != #; FAIL: test_sum (__main__.Sums.test_sum)"),
        (PYTEST, "FAILED test_sums.py::test_sum - assert # == #"),
        (LOGGED, "difference # in # of # elements"),
        ("got [1., nan, -inf], expected [2.5, 1e-3, .5]\n", "got [#], expected [#]"),
    ],
)
def test_the_last_words_of_a_script_are_what_failed_without_numbers(text: str, words: str) -> None:
    assert last_words(text) == words


def test_runs_with_one_exit_status_and_other_last_words_fail_in_different_ways() -> None:
    first = outcome_of(1, UNITTEST)
    assert first.same_bug(outcome_of(1, UNITTEST.replace("3.0", "nan")))
    assert not first.same_bug(outcome_of(1, UNITTEST.replace("test_sum", "test_mean")))
    assert not first.same_bug(outcome_of(1, CAUGHT))
