"""tcdebug run --check guards: its output and exit status; plain --check is unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tcdebug.cli.main import run

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
    assert tcdebug("run", "--check=guards", script(RIGHT)).status == 0


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
