"""The gate: what toggles mean, what a site is, what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import PROPERTY

from tcdebug.compiler.gate.gate import Decision, Gate, site_id
from tcdebug.compiler.gate.toggles import BadToggle, Toggles, belongs


def test_everything_is_allowed_at_first() -> None:
    assert Gate().allows("fuse.inline", "a->b")


def test_a_unit_that_is_off_is_refused_with_all_below_it() -> None:
    gate = Gate(Toggles(off=frozenset({"lower"})))
    assert not gate.allows("lower.aten.add.Tensor", "add")
    assert gate.allows("lowering", "add")
    assert gate.allows("fuse.inline", "a->b")


def test_a_name_is_not_a_prefix_of_letters() -> None:
    assert belongs("fuse.inline", "fuse")
    assert belongs("fuse", "fuse")
    assert not belongs("fuse.inline", "fuse.in")
    assert belongs("anything.at.all", "all")


def test_first_lets_so_many_decisions_of_a_family_through() -> None:
    gate = Gate(Toggles.parse(["fuse:2"]))
    asked = ["fuse.inline", "fuse.vertical", "fuse.inline", "lower.aten.add.Tensor", "fuse.inline"]
    assert [gate.allows(unit, "s") for unit in asked] == [True, True, False, True, False]


def test_first_of_two_nested_names_both_count() -> None:
    gate = Gate(Toggles.parse(["fuse:3", "fuse.inline:1"]))
    asked = ["fuse.inline", "fuse.inline", "fuse.vertical", "fuse.vertical"]
    assert [gate.allows(unit, "s") for unit in asked] == [True, False, True, False]


def test_a_site_that_is_off_is_the_only_one_refused() -> None:
    first = Gate(graph_id="g")
    first.allows("fuse.inline", "a->b")
    first.allows("fuse.inline", "b->c")
    second = Gate(Toggles.parse([f"site:{first.decisions[1].site}"]), graph_id="g")
    assert second.allows("fuse.inline", "a->b")
    assert not second.allows("fuse.inline", "b->c")


def test_a_site_is_the_same_when_earlier_decisions_go_away() -> None:
    first, second = Gate(graph_id="g"), Gate(graph_id="g")
    first.allows("fuse.inline", "a->b")
    first.allows("fuse.inline", "b->c")
    second.allows("fuse.inline", "b->c")
    assert first.decisions[1].site == second.decisions[0].site
    assert first.decisions[1].ordinal == 1
    assert second.decisions[0].ordinal == 0


def test_sites_tell_graphs_directions_units_subjects_and_repeats_apart() -> None:
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


def test_every_answer_is_recorded_once_in_order() -> None:
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
    assert len({d.site for d in gate.decisions}) == 3  # the second of forward is a repeat
    assert gate.scope == ""


def test_another_attempt_asks_the_same_sites_and_goes_on_counting() -> None:
    first = Gate(graph_id="g").scoped("forward")
    first.allows("fuse.inline", "a")
    second = first.under(Toggles.parse(["fuse"]))
    assert not second.allows("fuse.inline", "a")
    assert [d.site for d in second.decisions] == [d.site for d in first.decisions]
    assert [d.ordinal for d in second.decisions] == [1]


NAMES = st.sampled_from(["all", "fuse", "fuse.inline", "lower.aten.add.Tensor"])


@given(st.lists(st.one_of(NAMES, NAMES.map(lambda n: f"{n}:3"), st.just("site:0a1b2c3d4e"))))
@PROPERTY
def test_toggles_read_back_what_they_write(texts: list[str]) -> None:
    toggles = Toggles.parse(texts)
    assert Toggles.parse(toggles.texts()) == toggles


@pytest.mark.parametrize("text", ["fuse:x", "fuse:-1", "fuse:"])
def test_a_toggle_that_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(BadToggle, match="is none of UNIT, site:ID, UNIT:COUNT"):
        Toggles.parse([text])


def test_without_and_limited_leave_the_original_alone() -> None:
    toggles = Toggles.parse(["fuse"])
    assert toggles.without(off=["lower"], sites=["1"]).texts() == ["fuse", "lower", "site:1"]
    assert toggles.limited("all", 3).texts() == ["fuse", "all:3"]
    assert toggles.texts() == ["fuse"]
