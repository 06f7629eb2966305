"""What a script prints in eager and compiled."""

from __future__ import annotations

import pytest

from tcdebug.minifier.subjects.printed import printed_otherwise

COMPILED = "epoch 0\nloss 0.50001\nseen ['a']\n"


@pytest.mark.parametrize(
    ("eager", "found"),
    [
        (COMPILED, ""),
        ("epoch 0\nloss 0.5\nseen ['a']\n", ""),
        ("epoch 0\nloss 0.7\nseen ['a']\n", "`loss 0.7` in eager, and `loss 0.50001` compiled"),
        ("epoch 0\nloss 0.5\nseen ['b']\n", "`seen ['b']` in eager, and `seen ['a']` compiled"),
        ("epoch 0\nhook\nloss 0.5\nseen ['a']\n", "`hook` in eager only"),
        ("loss 0.5\nseen ['a']\n", ""),
        ("epoch 0\nloss nan\nseen ['a']\n", "`loss nan` in eager, and `loss 0.50001` compiled"),
        ("a.py:3: UserWarning: slow\nepoch 0\nloss 0.5\nseen ['a']\n", ""),
    ],
)
def test_a_line_that_differs_by_more_than_rounding_is_found(eager: str, found: str) -> None:
    assert printed_otherwise(eager, COMPILED, COMPILED) == found


def test_lines_that_differ_from_run_to_run_are_not_compared() -> None:
    first, again = "took 9.5 s\nloss 0.5\n", "took 8.1 s\nloss 0.5\n"
    assert printed_otherwise("took 1.5 s\nloss 0.5\n", first, again) == ""
    assert printed_otherwise("took 1.5 s\nloss 0.7\n", first, again) == (
        "`loss 0.7` in eager, and `loss 0.5` compiled"
    )
    assert printed_otherwise("took 1.5 s\n", "took 9.5 s\n", "took 9.5 s\n") == (
        "`took 1.5 s` in eager, and `took 9.5 s` compiled"
    )
