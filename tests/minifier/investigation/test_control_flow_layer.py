"""The layer of a script whose control-flow operators torch has captured in eager too."""

from __future__ import annotations

import pytest

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.script_layers import LayerSearch
from tcdebug.minifier.subjects.layer_texts import Off

FAILS = Outcome(Kind.EXCEPTION, "script", "script | AssertionError", "AssertionError: 3")
OPERATORS = "layer.dynamo.operators"


@pytest.mark.parametrize(
    ("used", "passing", "layer"),
    [
        ({OPERATORS}, OPERATORS, OPERATORS),
        ({OPERATORS}, "layer.aotinductor", "layer.script"),
        (set(), OPERATORS, "layer.script"),
    ],
)
def test_a_script_that_passes_only_if_python_calls_its_operators_does_not_fail_in_eager(
    used: set[str], passing: str, layer: str
) -> None:
    def ask(questions: tuple[Off, ...]) -> dict[Off, Outcome]:
        passed = Outcome(Kind.OK, "script")
        return {off: passed if passing in off else FAILS for off in questions}

    search = LayerSearch(ask, FAILS, {(): FAILS}, used=lambda: frozenset(used))
    assert search.find().layer == layer
