"""Bisection of programs that ask a real gate, with planted culprits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import MOST_FAULTS, MOST_PLACES, Fault, Verdict, bisect
from tcdebug.minifier.cases.outcome import Kind, Outcome

PROPERTY = property_settings(60)
OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
CRASH = Outcome(Kind.CRASH, "compile", "compile | SIGSEGV")

Step = tuple[str, str]
"""A question to the gate: unit and subject."""
Judge = Callable[[Sequence[Step]], Outcome]
"""Returns the outcome of a compile from the steps that it took."""


@dataclass
class Program:
    """A compile that takes the steps that its gate allows, and is then judged."""

    steps: Sequence[Step]
    judge: Judge
    asked: list[list[str]] = field(default_factory=list)

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        assert purpose
        self.asked.append(toggles.texts())
        gate = Gate(toggles, "g-0")
        taken = [step for step in self.steps if gate.allows(*step)]
        end = self.judge(taken)
        return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    def bisected(self, base: Toggles | None = None) -> Verdict:
        base = base or Toggles()
        failure = self.ask(base, "the failure")
        assert failure.failed
        self.asked.clear()
        return bisect(self.ask, failure, base, EventLog(None))


def wrong_when(*culprits: Step) -> Judge:
    """Return a judge that is wrong as soon as one of these steps is taken."""
    return lambda taken: WRONG if set(culprits) & set(taken) else OK


def steps_of(unit: str, count: int) -> list[Step]:
    return [(unit, f"n{k}") for k in range(count)]


PIPELINE = [
    *steps_of("passes.cse", 3),
    *steps_of("passes.algebraic", 5),
    *steps_of("lower.aten.tanh.default", 4),
    *steps_of("lower.aten.add.Tensor", 9),
    *steps_of("fuse.inline", 20),
    *steps_of("memory.reuse", 7),
]


def found(verdict: Verdict) -> list[Step]:
    return [(c.unit, c.subject) for c in verdict.decisions()]


def test_one_culprit_is_found_and_confirmed() -> None:
    program = Program(PIPELINE, wrong_when(("fuse.inline", "n13")))
    verdict = program.bisected()
    assert found(verdict) == [("fuse.inline", "n13")]
    assert verdict.confirmed
    assert not verdict.core
    assert not verdict.faults[0].whole_unit
    assert verdict.decisions()[0].ordinal == 13
    assert verdict.units() == ["fuse.inline"]


def test_the_questions_are_families_first_then_decisions_then_the_check() -> None:
    program = Program(PIPELINE, wrong_when(("fuse.inline", "n13")))
    site = program.bisected().decisions()[0].site
    everything = [["all"]]
    families = [["all:21"], ["all:41"]]
    decisions = [["all:31"], ["all:36"], ["all:33"], ["all:34"], ["all:35"]]
    assert program.asked == [*everything, *families, *decisions, [f"site:{site}"]]


def test_a_failure_with_everything_off_is_in_the_core() -> None:
    program = Program(PIPELINE, lambda taken: WRONG)
    assert program.bisected() == Verdict(core=True)
    assert program.asked == [["all"]]


def test_a_different_failure_with_everything_off_is_not_in_the_core() -> None:
    culprit = ("passes.cse", "n1")

    def judge(taken: Sequence[Step]) -> Outcome:
        return WRONG if culprit in taken else CRASH if not taken else OK

    verdict = Program(PIPELINE, judge).bisected()
    assert not verdict.core
    assert found(verdict) == [culprit]
    assert verdict.confirmed


def test_two_culprits_of_one_bug_are_both_found() -> None:
    culprits = ("passes.algebraic", "n2"), ("memory.reuse", "n6")
    verdict = Program(PIPELINE, wrong_when(*culprits)).bisected()
    assert found(verdict) == list(culprits)
    assert verdict.units() == ["passes.algebraic", "memory.reuse"]
    assert verdict.confirmed


def test_two_bugs_with_different_signatures_are_both_found() -> None:
    crash, wrong = ("passes.cse", "n0"), ("fuse.inline", "n19")

    def judge(taken: Sequence[Step]) -> Outcome:
        return CRASH if crash in taken else WRONG if wrong in taken else OK

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [crash, wrong]
    assert verdict.confirmed


def test_a_unit_that_is_wrong_in_every_place_is_one_culprit() -> None:
    places = steps_of("lower.aten.tanh.default", 4)
    verdict = Program(PIPELINE, wrong_when(*places)).bisected()
    assert found(verdict) == [("lower.aten.tanh.default", "n0")]
    assert all(fault.whole_unit for fault in verdict.faults)
    assert verdict.confirmed


def test_two_units_wrong_in_every_place_are_two_culprits() -> None:
    places = [*steps_of("lower.aten.tanh.default", 4), *steps_of("fuse.inline", 20)]
    verdict = Program(PIPELINE, wrong_when(*places)).bisected()
    assert verdict.units() == ["lower.aten.tanh.default", "fuse.inline"]
    assert all(fault.whole_unit for fault in verdict.faults)
    assert verdict.confirmed


def test_of_steps_that_are_wrong_only_together_the_later_one_is_found() -> None:
    pair = {("passes.cse", "n2"), ("fuse.inline", "n5")}
    verdict = Program(PIPELINE, lambda taken: WRONG if pair <= set(taken) else OK).bisected()
    assert found(verdict) == [("fuse.inline", "n5")]
    assert verdict.confirmed


def test_a_failure_that_the_full_prefix_does_not_show_has_no_culprit() -> None:
    program = Program(PIPELINE, wrong_when(("passes.cse", "n0")))
    original = program.ask

    def flaky(toggles: Toggles, purpose: str) -> Outcome:
        return OK if toggles.first else original(toggles, purpose)

    failure = program.ask(Toggles(), "the failure")
    verdict = bisect(flaky, failure, Toggles(), EventLog(None))
    assert verdict == Verdict()


def test_a_failure_without_decisions_has_no_culprit() -> None:
    def ask(toggles: Toggles, purpose: str) -> Outcome:
        return OK if "all" in toggles.off else WRONG

    assert bisect(ask, WRONG, Toggles(), EventLog(None)) == Verdict()


def test_a_failure_that_comes_back_with_all_culprits_off_is_not_confirmed() -> None:
    """Everything except the empty program fails, so one unit after another is blamed."""
    units = [f"fuse.unit{k}" for k in range(20)]
    program = Program([(u, "n") for u in units], lambda taken: WRONG if taken else OK)
    verdict = program.bisected()
    assert verdict.units() == units[:MOST_FAULTS]
    assert not verdict.confirmed


def test_units_that_are_already_off_stay_off() -> None:
    base = Toggles.parse(["passes.cse", "site:0123456789", "lower:5"])
    program = Program(PIPELINE, wrong_when(("passes.cse", "n0"), ("memory.reuse", "n3")))
    verdict = program.bisected(base)
    assert found(verdict) == [("memory.reuse", "n3")]
    assert all({"passes.cse", "site:0123456789", "lower:5"} <= set(a) for a in program.asked)


def test_a_site_is_found_even_if_its_place_moves() -> None:
    """Without the first pass, one step of every later unit disappears."""
    culprit = ("memory.reuse", "n4")

    @dataclass
    class Moving(Program):
        def ask(self, toggles: Toggles, purpose: str) -> Outcome:
            gate = Gate(toggles, "g-0")
            first = gate.allows(*PIPELINE[0])
            rest = PIPELINE[1:] if first else [s for s in PIPELINE[1:] if s[1] != "n1"]
            taken = [step for step in rest if gate.allows(*step)]
            end = self.judge(taken)
            return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    verdict = Moving(PIPELINE, wrong_when(culprit)).bisected()
    assert found(verdict) == [culprit]
    assert verdict.confirmed


def most_questions(verdict: Verdict, decisions: int) -> int:
    """Count: all off; per culprit all on, two binary searches, its site off, its unit off; back on.

    A search over families and then within one takes at most one question more than log2 for each.
    """
    each = 3 + 2 * (decisions.bit_length() + 1)
    places = (MOST_PLACES - 1) * (decisions.bit_length() + 3)
    return 1 + len(verdict.faults) * (each + 1 + places)


@PROPERTY
@given(st.data())
def test_planted_units_are_found_whatever_the_pipeline(data: st.DataObject) -> None:
    families = ["passes", "lower", "fuse", "codegen", "memory"]
    steps: list[Step] = []
    for family in families:
        for unit in range(data.draw(st.integers(0, 4))):
            steps += steps_of(f"{family}.u{unit}", data.draw(st.integers(1, 12)))
    if not steps:
        steps = [("passes.u0", "n0")]
    culprits = data.draw(st.lists(st.sampled_from(steps), min_size=1, max_size=4, unique=True))
    program = Program(steps, wrong_when(*culprits))
    verdict = program.bisected()
    planted = [u for u in dict.fromkeys(u for u, _ in steps) if u in {c[0] for c in culprits}]
    assert verdict.units() == planted
    assert verdict.confirmed
    assert all(c in culprits for c in found(verdict))
    assert len(program.asked) <= most_questions(verdict, len(steps))


def test_units_are_named_once() -> None:
    decisions = [Decision("fuse.inline", f"n{k}", f"{k:010}", k, True) for k in range(3)]
    faults = tuple(Fault(WRONG, (decision,)) for decision in decisions)
    assert Verdict(faults, confirmed=True).units() == ["fuse.inline"]


def test_two_wrong_fusions_are_one_fault_in_two_named_places() -> None:
    places = ("fuse.inline", "n3"), ("fuse.inline", "n11")
    verdict = Program(PIPELINE, wrong_when(*places)).bisected()
    (fault,) = verdict.faults
    assert [(d.unit, d.subject) for d in fault.decisions] == list(places)
    assert not fault.whole_unit
    assert verdict.confirmed


def test_a_failure_caused_by_switching_off_is_not_a_second_fault() -> None:
    """Without the pass everything after it is illegal, even with all of it off."""
    needed = ("passes.cse", "n2")

    def judge(taken: Sequence[Step]) -> Outcome:
        return WRONG if needed in taken else CRASH

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [needed]
    assert not verdict.confirmed


ILLEGAL = Outcome(Kind.EXCEPTION, "compile", "compile | AssertionError")
REJECTED = Outcome(Kind.EXCEPTION, "forward", "forward | RuntimeError")
NO_CASE = Outcome(Kind.INVALID)


@pytest.mark.parametrize("other", [ILLEGAL, REJECTED, NO_CASE])
def test_a_later_step_without_which_it_fails_differently_is_not_the_culprit(
    other: Outcome,
) -> None:
    """For example, a pass makes a wrong in-place update, and ATen rejects the same update."""
    culprit, lowered = ("passes.cse", "n2"), ("lower.aten.add.Tensor", "n4")

    def judge(taken: Sequence[Step]) -> Outcome:
        if culprit not in taken:
            return OK
        return WRONG if lowered in taken else other

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [culprit]
    assert verdict.confirmed


@pytest.mark.parametrize("other", [ILLEGAL, REJECTED, NO_CASE])
@pytest.mark.parametrize("needed", [("lower.aten.tanh.default", "n1"), ("memory.reuse", "n6")])
def test_a_step_that_the_program_needs_after_the_culprit_is_not_the_culprit(
    other: Outcome, needed: Step
) -> None:
    """Every prefix that ends between the two fails in a different way."""
    culprit = ("passes.algebraic", "n3")

    def judge(taken: Sequence[Step]) -> Outcome:
        if taken and needed not in taken:
            return other
        return WRONG if culprit in taken else OK

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [culprit]
    assert verdict.confirmed


@pytest.mark.parametrize("other", [ILLEGAL, REJECTED, NO_CASE])
@pytest.mark.parametrize("failure", [CRASH, WRONG])
@pytest.mark.parametrize("culprit", [("passes.algebraic", "n3"), ("memory.reuse", "n6")])
@pytest.mark.parametrize("needed", [("passes.cse", "n0"), ("fuse.inline", "n19")])
def test_a_step_that_the_program_always_needs_is_not_the_culprit(
    other: Outcome, failure: Outcome, culprit: Step, needed: Step
) -> None:
    """For example, a pass that replaces what the backend cannot compile."""

    def judge(taken: Sequence[Step]) -> Outcome:
        return other if needed not in taken else failure if culprit in taken else OK

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [culprit]
    assert verdict.confirmed


@pytest.mark.parametrize("other", [ILLEGAL, REJECTED, NO_CASE])
def test_nothing_is_confirmed_if_no_single_unit_makes_it_pass(other: Outcome) -> None:
    def judge(taken: Sequence[Step]) -> Outcome:
        return WRONG if len(taken) == len(PIPELINE) else other

    verdict = Program(PIPELINE, judge).bisected()
    assert not verdict.confirmed


@pytest.mark.parametrize(("last", "tried"), [(ILLEGAL, 0), (OK, 5)])
def test_units_behind_a_first_fault_are_tried_alone_only_if_all_together_pass(
    last: Outcome, tried: int
) -> None:
    """With the two culprits off, it fails in a third way if any step is taken."""
    first, second = ("memory.reuse", "n6"), ("passes.cse", "n0")

    def judge(taken: Sequence[Step]) -> Outcome:
        if first in taken or second in taken:
            return WRONG if first in taken else REJECTED
        return ILLEGAL if taken else last

    program = Program(PIPELINE, judge)
    verdict = program.bisected()
    assert found(verdict)[:2] == [first, second]
    assert not verdict.confirmed
    without_first = verdict.faults[0].switched_off(Toggles()).texts()
    units = {unit for unit, _ in PIPELINE} - {second[0]}
    assert sum([unit, *without_first] in program.asked for unit in units) == tried


def test_units_that_cause_the_same_failure_are_alternatives() -> None:
    either = ("passes.cse", "n1"), ("lower.aten.tanh.default", "n0"), ("memory.reuse", "n2")
    verdict = Program(PIPELINE, wrong_when(*either)).bisected()
    assert verdict.units() == [unit for unit, _ in either]
    assert [f.unit for f in verdict.alternatives()] == [unit for unit, _ in either[1:]]
    assert verdict.confirmed


@pytest.mark.parametrize(
    ("steps", "every"),
    [
        ([("lower.sin", "a"), ("lower.mul", "b"), ("lower.sin", "c")], True),
        ([("postgrad.pass", "p"), ("lower.sin", "a"), ("lower.mul", "b"), ("fuse.v", "f")], True),
        ([("lower.sin", "a"), ("lower.mul", "b"), ("lower.right", "c")], False),
        ([("lower.sin", "a")], False),
        ([("decompose.mul", "a"), ("lower.sin", "b")], False),
    ],
)
def test_several_faults_may_be_all_lowerings_that_there_are(steps: list[Step], every: bool) -> None:
    wrong = [step for step in steps if step[0].rpartition(".")[2] in ("sin", "mul")]
    verdict = Program(steps, wrong_when(*wrong)).bisected()
    assert verdict.confirmed
    assert set(verdict.units()) == {unit for unit, _ in wrong}
    assert verdict.every_lowering is every


def test_a_setting_that_ignores_whether_a_step_is_off_is_named_behind_the_step() -> None:
    setting, lowering = ("config.wrapper", "True"), ("lower.sin", "sin")
    verdict = Program([setting, lowering], wrong_when(setting, lowering)).bisected()
    assert verdict.confirmed
    assert verdict.units() == ["lower.sin", "config.wrapper"]
    assert [fault.unit for fault in verdict.alternatives()] == ["config.wrapper"]


def test_alternatives_that_were_found_by_another_failure_cause_the_first_one() -> None:
    """Either step returns one tensor twice; a later step decides how that shows."""
    first, shown, last = (
        ("passes.cse", "n1"), ("passes.algebraic", "n2"), ("lower.aten.add.Tensor", "n4")
    )  # fmt: skip

    def judge(taken: Sequence[Step]) -> Outcome:
        if not {first, last} & set(taken):
            return OK
        return WRONG if shown in taken else REJECTED

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [first, last]
    assert [fault.failure.kind for fault in verdict.faults] == [Kind.WRONG, Kind.WRONG]
    assert [fault.unit for fault in verdict.alternatives()] == ["lower.aten.add.Tensor"]
    assert verdict.confirmed


def test_of_a_pair_of_which_either_may_be_off_the_later_one_is_named() -> None:
    pair = {("passes.cse", "n0"), ("passes.algebraic", "n0")}
    verdict = Program(PIPELINE, lambda taken: WRONG if pair <= set(taken) else OK).bisected()
    assert found(verdict) == [("passes.algebraic", "n0")]
    assert verdict.alternatives() == ()
    assert verdict.confirmed


def test_a_unit_that_only_changes_how_it_fails_is_not_named_beside_the_cause() -> None:
    """With the first unit off there is another failure. With the second one off there is none."""
    cause, change = ("passes.algebraic", "n0"), ("lower.aten.tanh.default", "n0")
    raises = Outcome(Kind.EXCEPTION, "backward", "backward | ValueError")

    def judge(taken: Sequence[Step]) -> Outcome:
        if cause not in taken:
            return OK
        return WRONG if change in taken else raises

    verdict = Program(PIPELINE, judge).bisected()
    assert found(verdict) == [cause]
    assert verdict.confirmed


def test_a_unit_that_has_to_be_off_in_all_places_is_named_at_its_first_wrong_place() -> None:
    """Without the wrong step alone there is another failure, which an earlier step causes."""
    earlier, wrong = ("fuse.vertical", "n0"), ("fuse.vertical", "n1")
    raises = Outcome(Kind.EXCEPTION, "compile", "compile | AssertionError")

    def judge(taken: Sequence[Step]) -> Outcome:
        if wrong in taken:
            return WRONG
        return raises if earlier in taken and len(taken) > 8 else OK

    steps = [
        *steps_of("lower.aten.tanh.default", 4),
        *steps_of("fuse.vertical", 4),
        *steps_of("codegen.vectorize", 3),
    ]
    program = Program(steps, judge)
    verdict = program.bisected()
    assert (found(verdict), verdict.confirmed) == ([wrong], True)
    (fault,) = verdict.faults
    assert fault.whole_unit


@pytest.mark.parametrize(("unit", "named"), [("lower.aten.tanh.default", 1), ("fuse.vertical", 2)])
def test_an_operator_that_hangs_in_forward_and_in_backward_is_one_fault(
    unit: str, named: int
) -> None:
    """Different steps of a unit of general use, which fail in different ways, are two faults."""
    steps = [("passes.cse", "n0"), (unit, "forward"), ("memory.reuse", "n0"), (unit, "backward")]
    hangs = {phase: Outcome(Kind.HANG, phase, f"{phase} | hang") for _, phase in steps[1::2]}

    def judge(taken: Sequence[Step]) -> Outcome:
        return next((hangs[place] for name, place in taken if name == unit), OK)

    verdict = Program(steps, judge).bisected()
    assert found(verdict) == [(unit, "forward"), (unit, "backward")][:named]
    assert [fault.whole_unit for fault in verdict.faults] == [named == 1] * named
    assert verdict.confirmed


def test_a_hang_is_not_run_again_with_all_its_steps_allowed_one_by_one() -> None:
    """It never gets past them, and each such run takes a whole time limit."""
    steps = [
        ("passes.cse", "n0"),
        ("lower.aten.exp.default", "n0"),
        ("lower.aten.erf.default", "n0"),
    ]
    hangs = Outcome(Kind.HANG, "compile", "compile | hang")
    program = Program(steps, lambda taken: hangs if steps[-1] in taken else OK)
    verdict = program.bisected()
    assert (found(verdict), verdict.confirmed) == ([steps[-1]], True)
    assert ["all:2"] in program.asked
    assert ["all:3"] not in program.asked


STEPS = st.sampled_from([(unit, "n0") for unit in dict.fromkeys(unit for unit, _ in PIPELINE)])


@PROPERTY
@given(st.lists(st.sets(STEPS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_fault_that_needs_several_steps_is_found_and_confirmed(wrong: list[set[Step]]) -> None:
    def judge(taken: Sequence[Step]) -> Outcome:
        return WRONG if any(together <= set(taken) for together in wrong) else OK

    program = Program(PIPELINE, judge)
    verdict = program.bisected()
    assert verdict.confirmed
    for faults in ([], *([fault] for fault in verdict.faults)):
        toggles = Toggles()
        for other in verdict.faults:
            if other not in faults:
                toggles = other.switched_off(toggles)
        assert program.ask(toggles, "again").failed == bool(faults)


def test_if_another_pair_is_fused_instead_the_unit_is_named_in_few_questions() -> None:
    """Which steps are fused depends on what was refused, so the places of a unit never end."""

    @dataclass
    class Shifting(Program):
        def ask(self, toggles: Toggles, purpose: str) -> Outcome:
            self.asked.append(toggles.texts())
            gate = Gate(toggles, "g-0")
            taken = [step for step in PIPELINE[:20] if gate.allows(*step)]
            fused = any(gate.allows("fuse.vertical", f"0 | {k}") for k in range(30))
            decisions = tuple(gate.decisions)
            if fused and taken:
                return Outcome(WRONG.kind, WRONG.phase, WRONG.signature, decisions=decisions)
            return Outcome(Kind.OK, decisions=decisions)

    program = Shifting([], lambda taken: OK)
    verdict = program.bisected()
    assert verdict.units() == ["fuse.vertical"]
    assert verdict.faults[0].whole_unit
    assert verdict.confirmed
    assert len(program.asked) <= 15


def test_a_failure_in_an_earlier_phase_caused_by_switching_off_ends_the_search() -> None:
    culprit, needs = ("passes.cse", "n2"), ("memory.reuse", "n3")

    def judge(taken: Sequence[Step]) -> Outcome:
        if culprit in taken:
            return WRONG
        return ILLEGAL if needs in taken else OK

    verdict = Program(PIPELINE, judge).bisected()
    assert ("memory.reuse", "n3") in found(verdict) or found(verdict) == [culprit]
    assert not (verdict.confirmed and len(verdict.faults) > 1)
