"""The gate: the meaning of toggles and sites, and what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import PROPERTY

from tcdebug.compiler.gate.gate import Decision, Gate, site_id
from tcdebug.compiler.gate.toggles import BadToggle, Toggles, belongs


def test_everything_is_allowed_by_default() -> None:
    assert Gate().allows("fuse.inline", "a->b")


def test_switching_a_unit_off_denies_all_units_below_it() -> None:
    gate = Gate(Toggles(off=frozenset({"lower"})))
    assert not gate.allows("lower.aten.add.Tensor", "add")
    assert gate.allows("lowering", "add")
    assert gate.allows("fuse.inline", "a->b")


def test_the_name_of_a_unit_matches_whole_components() -> None:
    assert belongs("fuse.inline", "fuse")
    assert belongs("fuse", "fuse")
    assert not belongs("fuse.inline", "fuse.in")
    assert belongs("anything.at.all", "all")


def test_first_allows_a_number_of_decisions_of_a_family() -> None:
    gate = Gate(Toggles.parse(["fuse:2"]))
    asked = ["fuse.inline", "fuse.vertical", "fuse.inline", "lower.aten.add.Tensor", "fuse.inline"]
    assert [gate.allows(unit, "s") for unit in asked] == [True, True, False, True, False]


def test_limits_on_two_nested_units_both_apply() -> None:
    gate = Gate(Toggles.parse(["fuse:3", "fuse.inline:1"]))
    asked = ["fuse.inline", "fuse.inline", "fuse.vertical", "fuse.vertical"]
    assert [gate.allows(unit, "s") for unit in asked] == [True, False, True, False]


def test_only_the_decision_of_a_site_that_is_off_is_denied() -> None:
    first = Gate(graph_id="g")
    first.allows("fuse.inline", "a->b")
    first.allows("fuse.inline", "b->c")
    second = Gate(Toggles.parse([f"site:{first.decisions[1].site}"]), graph_id="g")
    assert second.allows("fuse.inline", "a->b")
    assert not second.allows("fuse.inline", "b->c")


def test_a_site_does_not_depend_on_earlier_decisions() -> None:
    first, second = Gate(graph_id="g"), Gate(graph_id="g")
    first.allows("fuse.inline", "a->b")
    first.allows("fuse.inline", "b->c")
    second.allows("fuse.inline", "b->c")
    assert first.decisions[1].site == second.decisions[0].site
    assert first.decisions[1].ordinal == 1
    assert second.decisions[0].ordinal == 0


def test_sites_distinguish_graphs_directions_units_subjects_and_repeats() -> None:
    sites: set[str] = set()
    for graph in ("g", "h"):
        gate = Gate(graph_id=graph)
        for scope in ("forward", "backward"):
            asking = gate.scoped(scope)
            for unit in ("fuse.inline", "fuse.vertical"):
                for subject in ("a", "b", "a"):
                    asking.allows(unit, subject)
        sites |= {d.site for d in gate.decisions}
    assert len(sites) == 2 * 2 * 2 * 3


def test_a_site_is_ten_hex_digits_and_the_same_in_every_process() -> None:
    assert site_id("g", "", "fuse.inline", "a->b", "0") == "a132095e2b"


def test_every_decision_is_recorded_once_in_order() -> None:
    heard: list[Decision] = []
    gate = Gate(Toggles.parse(["fuse"]), "g", lambda decision, scope: heard.append(decision))
    gate.allows("fuse.inline", "a")
    gate.allows("lower.aten.add.Tensor", "b")
    assert heard == gate.decisions
    assert [(d.unit, d.subject, d.ordinal, d.allowed) for d in heard] == [
        ("fuse.inline", "a", 0, False),
        ("lower.aten.add.Tensor", "b", 0, True),
    ]


def test_scoped_gates_share_counts_and_decisions_and_each_keeps_its_scope() -> None:
    heard: list[tuple[str, str, int]] = []
    gate = Gate(
        Toggles.parse(["fuse:2"]),
        "g",
        lambda decision, scope: heard.append((scope, decision.subject, decision.ordinal)),
    )
    forward, backward = gate.scoped("forward"), gate.scoped("backward")
    answers = [g.allows("fuse.inline", "a") for g in (forward, backward, forward)]
    assert answers == [True, True, False]
    assert heard == [("forward", "a", 0), ("backward", "a", 1), ("forward", "a", 2)]
    assert len({d.site for d in gate.decisions}) == 3  # the second decision of forward is a repeat
    assert gate.scope == ""


def test_a_scoped_gate_decides_like_the_gate_of_its_graph() -> None:
    turned = Gate(graph_id="g")
    turned.allows("fuse.vertical", "a+b")
    turned.turn_to("backward")
    turned.allows("fuse.vertical", "a+b")
    other = Gate(graph_id="g").scoped("backward")
    other.allows("fuse.vertical", "a+b")
    assert [d.ordinal for d in turned.decisions] == [0, 1]
    assert turned.decisions[0].site != turned.decisions[1].site == other.decisions[0].site


def test_another_attempt_has_the_same_sites_and_continues_to_count() -> None:
    first = Gate(graph_id="g").scoped("forward")
    first.allows("fuse.inline", "a")
    second = first.under(Toggles.parse(["fuse"]))
    assert not second.allows("fuse.inline", "a")
    assert [d.site for d in second.decisions] == [d.site for d in first.decisions]
    assert [d.ordinal for d in second.decisions] == [1]


NAMES = st.sampled_from(["all", "fuse", "fuse.inline", "lower.aten.add.Tensor"])


@given(st.lists(st.one_of(NAMES, NAMES.map(lambda n: f"{n}:3"), st.just("site:0a1b2c3d4e"))))
@PROPERTY
def test_toggles_parse_their_own_text(texts: list[str]) -> None:
    toggles = Toggles.parse(texts)
    assert Toggles.parse(toggles.texts()) == toggles


@pytest.mark.parametrize("text", ["fuse:x", "fuse:-1", "fuse:"])
def test_a_toggle_that_cannot_be_parsed_is_an_error(text: str) -> None:
    with pytest.raises(BadToggle, match="is none of UNIT, site:ID, UNIT:COUNT"):
        Toggles.parse([text])


def test_without_and_limited_leave_the_original_alone() -> None:
    toggles = Toggles.parse(["fuse"])
    assert toggles.without(off=["lower"], sites=["1"]).texts() == ["fuse", "lower", "site:1"]
    assert toggles.limited("all", 3).texts() == ["fuse", "all:3"]
    assert toggles.texts() == ["fuse"]
