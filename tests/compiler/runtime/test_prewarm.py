"""Work that is started before it is needed."""

from __future__ import annotations

import threading

import pytest

from tcdebug.compiler.runtime import prewarm


def test_work_is_done_once() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(threading.current_thread().name)
        return name.upper()

    prewarm.begin(make, "a")
    assert prewarm.finished(make, "a") == "A"
    assert prewarm.finished(make, "a") == "A"
    assert len(made) == 1
    assert made[0].startswith("tcdebug-prewarm")
    assert prewarm.finished(make, "b") == "B"


def test_failed_work_is_repeated() -> None:
    answers = iter([None, "launcher"])

    def make() -> str:
        if (answer := next(answers)) is None:
            raise FileNotFoundError("no compiler")
        return answer

    prewarm.begin(make)
    with pytest.raises(FileNotFoundError, match="no compiler"):
        prewarm.finished(make)
    assert prewarm.finished(make) == "launcher"
