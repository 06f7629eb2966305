"""The fewest units that must be on, in programs that ask a real gate."""

from __future__ import annotations

from collections.abc import Callable

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask
from tcdebug.minifier.bisection.enabled import Enabled, Unlisted, fewest_enabled
from tcdebug.minifier.cases.outcome import Kind, Outcome

OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")

Compile = Callable[[Callable[[str], bool]], bool]
"""Asks about units, and returns whether the result is wrong."""


def asking(compile_: Compile) -> Ask:
    def ask(toggles: Toggles, purpose: str) -> Outcome:
        assert purpose
        gate = Gate(toggles, "g-0")
        end = WRONG if compile_(lambda unit: gate.allows(unit, "n")) else OK
        return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    return ask


def enabled(compile_: Compile, unit: str) -> Enabled | None:
    ask = asking(compile_)
    found = fewest_enabled(ask, ask(Toggles(), "the failure"), unit, Toggles())
    assert not isinstance(found, Unlisted)
    return found


def test_a_unit_that_is_wrong_by_itself_needs_no_other() -> None:
    def compiled(on: Callable[[str], bool]) -> bool:
        return [on("lower.a"), on("lower.b"), on("fuse.inline")][1]

    assert enabled(compiled, "lower.b") == Enabled("lower.b")


def test_two_units_wrong_only_together_are_partners() -> None:
    def compiled(on: Callable[[str], bool]) -> bool:
        first, _, second = on("passes.a"), on("passes.b"), on("lower.c")
        return first and second

    found = enabled(compiled, "lower.c")
    assert found == Enabled("lower.c", partners=("passes.a",))
    assert found.units() == ["passes.a", "lower.c"]


def test_a_unit_on_which_a_decision_depends_is_required_but_not_a_partner() -> None:
    """A fusion is asked about only if both of its loops are generated."""

    def compiled(on: Callable[[str], bool]) -> bool:
        a, b, _ = on("lower.a"), on("lower.b"), on("lower.c")
        return a and b and on("fuse.vertical")

    assert enabled(compiled, "fuse.vertical") == Enabled(
        "fuse.vertical", requires=("lower.a", "lower.b")
    )


def test_a_failure_that_needs_units_without_decisions_has_no_smallest_set() -> None:
    def compiled(on: Callable[[str], bool]) -> bool:
        return all([on("lower.a"), on("lower.b")])

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        return OK if toggles.only else asking(compiled)(toggles, purpose)

    failure = ask(Toggles(), "the failure")
    assert fewest_enabled(ask, failure, "lower.b", Toggles()) is None


def test_up_to_four_needed_units_are_listed_and_more_are_not_searched_for() -> None:
    """For example, one order of many buffers needs dozens of units."""
    names = [f"config.option{k}" for k in range(40)]

    def asked(count: int) -> tuple[Enabled | Unlisted | None, int]:
        answer = asking(lambda on: all([*[on(name) for name in names][:count], on("lower.b")]))
        questions: list[str] = []

        def ask(toggles: Toggles, purpose: str) -> Outcome:
            questions.append(purpose)
            return answer(toggles, purpose)

        failure = answer(Toggles(), "the failure")
        return fewest_enabled(ask, failure, "lower.b", Toggles()), len(questions)

    found, _ = asked(4)
    assert isinstance(found, Enabled) and set(found.partners) == set(names[:4])
    found, questions = asked(30)
    assert found == Unlisted()
    assert questions <= 30


def test_a_partner_with_a_substitute_is_a_group() -> None:
    """For example, two passes remove an operator, and a third is wrong without that operator."""

    def compiled(on: Callable[[str], bool]) -> bool:
        early, _, late = on("joint.noop"), on("lower.a"), on("postgrad.noop")
        return (early or late) and on("postgrad.reinplace")

    found = enabled(compiled, "postgrad.reinplace")
    assert found is not None
    assert found.partners == found.requires == ()
    (group,) = found.either
    assert set(group) == {"joint.noop", "postgrad.noop"}
    assert found.units() == [group[0], "postgrad.reinplace"]


def test_a_partner_without_which_it_fails_differently_is_only_required() -> None:
    other = Outcome(Kind.EXCEPTION, "compile", "compile | AssertionError")

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        gate = Gate(toggles, "g-0")
        needed, culprit = gate.allows("passes.a", "n"), gate.allows("lower.b", "n")
        end = OK if not culprit else WRONG if needed else other
        return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    failure = ask(Toggles(), "the failure")
    found = fewest_enabled(ask, failure, "lower.b", Toggles())
    assert found == Enabled("lower.b", requires=("passes.a",))
