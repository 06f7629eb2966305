"""What is begun before it is needed."""

from __future__ import annotations

import threading

import pytest

from tcdebug.compiler.runtime import ahead


def test_what_was_begun_is_made_once() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(threading.current_thread().name)
        return name.upper()

    ahead.begin(make, "a")
    assert ahead.finished(make, "a") == "A"
    assert ahead.finished(make, "a") == "A"
    assert len(made) == 1
    assert made[0].startswith("tcdebug-ahead")
    assert ahead.finished(make, "b") == "B"


def test_what_failed_is_tried_again() -> None:
    answers = iter([None, "launcher"])

    def make() -> str:
        if (answer := next(answers)) is None:
            raise FileNotFoundError("no compiler")
        return answer

    ahead.begin(make)
    with pytest.raises(FileNotFoundError, match="no compiler"):
        ahead.finished(make)
    assert ahead.finished(make) == "launcher"
