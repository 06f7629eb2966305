"""The caches are asked about first if several processes of a script may share them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.script_layers import LayerSearch
from tcdebug.minifier.subjects.layer_texts import Off

FAILS = Outcome(Kind.EXCEPTION, "script", "script | AssertionError", "AssertionError: [9, 9]")
PASSES = Outcome(Kind.OK, "script")
EAGER, DYNAMO, BARE = ("layer.dynamo",), ("layer.autograd",), ("layer.dynamo.wrapper",)
CACHES = ("layer.cache",)
AOT_CACHE, FX_CACHE = ("layer.cache.aotautograd",), ("layer.cache.fx_graph",)


def test_dynamo_comes_first_if_such_a_script_raised_where_its_graphs_were_only_recorded() -> None:
    questions: list[Off] = []

    def ask(offs: tuple[Off, ...]) -> Mapping[Off, Outcome]:
        questions.extend(offs)
        return {off: FAILS if off == DYNAMO else PASSES for off in offs}

    search = LayerSearch(
        ask, FAILS, {(): FAILS}, may_share_caches=lambda: True, raised_uncompiled=True
    )
    assert search.find().layer == "layer.dynamo.guards"
    assert questions[:2] == [EAGER, DYNAMO]
    assert not [off for off in questions if off[0].startswith("layer.cache")]


@pytest.mark.parametrize(
    ("failing", "layer", "asked"),
    [
        ((), "layer.cache.aotautograd", [EAGER, AOT_CACHE]),
        ((AOT_CACHE,), "layer.cache.fx_graph", [EAGER, AOT_CACHE, CACHES, FX_CACHE]),
        ((AOT_CACHE, FX_CACHE), "layer.cache.autotune", None),
        ((AOT_CACHE, CACHES), "layer.backend", None),
        ((EAGER, DYNAMO, BARE), "layer.script", None),
    ],
)
def test_caches_come_first_if_processes_of_a_script_may_share_them(
    failing: tuple[Off, ...], layer: str, asked: list[Off] | None
) -> None:
    questions: list[Off] = []

    def ask(offs: tuple[Off, ...]) -> Mapping[Off, Outcome]:
        questions.extend(offs)
        return {off: FAILS if off in failing else PASSES for off in offs}

    search = LayerSearch(ask, FAILS, {(): FAILS}, may_share_caches=lambda: True)
    finding = search.find()
    assert (finding.layer, finding.settled) == (layer, True)
    assert asked is None or questions == asked
