"""tcdebug run --check guards: its output and exit status; plain --check is unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tcdebug.cli.main import run
from tcdebug.reading.checks import checks

STALE = """
def make(op):
    def fn(x):
        return op(x, x)
    return fn

for op in (torch.Tensor.add, torch.Tensor.mul):
    torch.compile(make(op), backend="eager")(torch.tensor(3.0))
"""
RIGHT = STALE.replace("torch.Tensor.", "torch.")


def test_a_missing_guard_is_printed_and_the_script_then_ends_with_one(
    tcdebug: Callable[..., Any], script: Callable[[str], str]
) -> None:
    done = tcdebug("run", "--check", "guards", script(STALE))
    assert done.status == 1
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("missing guard in fn (")
    assert lines[1] == "wrong result: 6.0 instead of 9.0"
    assert lines[2] == (
        "changed function.op: method_descriptor TensorBase.add -> method_descriptor TensorBase.mul"
    )
    assert lines[3].endswith(": return op(x, x)")
    assert lines[4:] == ["reused add(%0, %0)", "fresh mul(%0, %0)"]
    checked = "1 call of 1 compiled function checked for missing guards: {} is wrong"
    assert checked.format("1") in done.stderr
    done = tcdebug("run", "--check=guards", script(RIGHT))
    assert done.status == 0
    assert checked.format("none") in done.stderr


def test_what_a_check_compared_is_counted_over_all_processes() -> None:
    def record(pid: int, check: str, of: str, verdict: str, detail: str = "") -> dict[str, Any]:
        data = {"check": check, "of": of, "call": 1, "verdict": verdict, "detail": detail}
        return {"event": "call.checked", "pid": pid, "data": data}

    drawn = "it draws"
    assert checks([{"event": "run.start", "pid": 1, "data": {}}]) == []
    assert checks([record(1, "results", "graph 0", "not compared", "it raised")]) == [
        "1 call: it raised"
    ]
    assert checks(
        [
            record(1, "results", "graph 0", "ok"),
            record(2, "results", "graph 0", "wrong"),
            record(2, "results", "graph 0", "wrong"),
            record(2, "results", "graph 1", "ok", drawn),
            record(2, "results", "graph 2", "not compared", "it raised"),
            record(1, "guards", "f", "ok"),
        ]
    ) == [
        "4 calls of 3 graphs compared with eager: 2 are wrong",
        "1 call: it draws",
        "1 call: it raised",
        "1 call of 1 compiled function checked for missing guards: none is wrong",
    ]


@pytest.mark.parametrize(
    ("given", "check"),
    [
        (["--check", "SCRIPT"], "results"),
        (["--check", "guards", "SCRIPT"], "guards"),
        (["--check=guards", "SCRIPT"], "guards"),
        (["--backend", "eager", "--check", "-q", "SCRIPT"], "results"),
        (["SCRIPT", "--check", "guards"], None),
    ],
    ids=lambda given: " ".join(given or ["none"]) if isinstance(given, list) else "",
)
def test_check_takes_a_value_but_needs_none(given: list[str], check: str | None) -> None:
    arguments = [__file__ if word == "SCRIPT" else word for word in given]
    context = run.make_context("run", arguments)
    assert context.params["check"] == check
    assert context.params["script"] == __file__
