"""How Python programs are drawn, and how a failing one is made smaller."""

from __future__ import annotations

import itertools
import re

import msgspec

from tcdebug.fuzz.hunt import simplified
from tcdebug.strategies.kinds import AnyProgram
from tcdebug.strategies.python.call_steps import MODES_READ, RECORDED, written_names
from tcdebug.strategies.python.features.branches import CONDITIONS
from tcdebug.strategies.python.python_program import CallStep, PythonProgram, parsed_lines
from tcdebug.strategies.python.python_programs import feature_names
from tests.planted_in_dynamo import PLANTED, PlantedUnit
from tests.support.drawn_programs import drawn


def test_equal_seeds_draw_equal_programs_and_few_programs_are_drawn_twice() -> None:
    keys = [p.key for p in drawn(50, 5)]
    assert keys == [p.key for p in drawn(50, 5)]
    assert len(set(keys)) >= 49


def test_each_flag_of_torch_that_a_condition_reads_may_change_between_calls() -> None:
    flags = [condition for condition in CONDITIONS if re.match(r"torch\.\w+.*\(", condition)]
    without = [flag for flag in flags if not CONDITIONS[flag]]
    assert len(flags) == 6
    assert [f for f in without if not any(name in f for name in MODES_READ)] == [
        "torch.compiler.is_exporting()"
    ]


def test_a_function_that_asks_for_gradients_is_often_called_with_arguments_that_need_them() -> None:
    programs = [*drawn(300, 2), *drawn(300, 3)]
    asking = [p for p in programs if re.search(r"\brequires_grad\b", p.source())]
    given = [p for p in asking if p.steps[0].backward and p.steps[0].lines[0][4:] in RECORDED]
    assert len(asking) >= 9
    assert len(given) >= len(asking) / 3


def test_the_names_of_features_are_unique() -> None:
    names = feature_names()
    assert len(names) == len(set(names)) > 150


def test_a_program_is_made_smaller_as_long_as_it_fails() -> None:
    unit: PlantedUnit = PLANTED["lost side effects"]
    large = msgspec.structs.replace(
        unit.program,
        definitions=(*unit.program.definitions, *parsed_lines("class A:\n    b = 1\n    c = 2")),
        body=parsed_lines("if n:\n    v = x * 2\n    ITEMS.append(n)\nfor k in (1, 2):\n    v = k"),
        steps=(*unit.program.steps, CallStep(("n = 2",), "torch.no_grad()", backward=True)),
        dynamic=True,
    )

    def fails(smaller: AnyProgram) -> bool:
        return isinstance(smaller, PythonProgram) and "ITEMS.append" in smaller.source()

    small = simplified(large, fails)
    assert isinstance(small, PythonProgram)
    assert small.source() == "import torch\ndef program(x, y, n=1):\n    ITEMS.append(n)\n"
    assert small.steps == (CallStep(),)
    assert small.dynamic is None


def test_a_feature_that_a_failure_does_not_need_becomes_a_multiplication_and_is_no_cause() -> None:
    made = msgspec.structs.replace(
        PLANTED["lost side effects"].program,
        body=(
            *parsed_lines("if n:\n    v1 = torch.sin(x)\nelse:\n    v1 = x", "branch"),
            *parsed_lines("ITEMS.append(v1)\nv2 = v1 * len(ITEMS)", "append to a list"),
        ),
    )

    def fails(smaller: AnyProgram) -> bool:
        text = smaller.source() if isinstance(smaller, PythonProgram) else ""
        return "ITEMS.append(v1)" in text and "v1 = " in text

    small = simplified(made, fails)
    assert isinstance(small, PythonProgram)
    assert [line.text for line in small.body] == ["v1 = y * 2.0", "ITEMS.append(v1)"]
    assert small.ops == ("multiply", "append to a list")
    assert small.causes == ("append to a list",)


def test_changes_between_calls_are_those_of_what_the_program_reads() -> None:
    assert {change: written_names(change) for change in (
        "BOX.scale = 3.0", "ITEMS.append(4.0)", "TABLE['a'] = 5.0", "def act(v): return v",
        "del BOX.count", "rebind(3.0)",
    )} == {
        "BOX.scale = 3.0": {"BOX", "scale"}, "ITEMS.append(4.0)": {"ITEMS"},
        "TABLE['a'] = 5.0": {"TABLE"}, "def act(v): return v": {"act"},
        "del BOX.count": {"BOX", "count"}, "rebind(3.0)": set(),
    }  # fmt: skip


def test_attributes_that_a_function_reads_from_a_class_may_be_hidden_by_the_object() -> None:
    hiding = [p for p in drawn(300, 5) if any(line.endswith("= 7.5") for line in changes_of(p))]
    assert len(hiding) >= 3
    for each in hiding:
        (change,) = {line for line in changes_of(each) if line.endswith("= 7.5")}
        assert change.removesuffix(" = 7.5") in each.source()


def test_most_calls_have_the_mode_of_the_call_before() -> None:
    """A call in another mode compiles again, and cannot show that a guard is missing."""
    pairs = [pair for p in drawn(100, 9) for pair in itertools.pairwise(p.steps)]
    equal = [one.mode == other.mode for one, other in pairs]
    assert 0.6 < sum(equal) / len(equal) < 0.95


def changes_of(made: PythonProgram) -> list[str]:
    """The statements between the calls of a program."""
    return [line for step in made.steps for line in step.lines]
