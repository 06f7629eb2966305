"""Generated programs are valid and reproducible, cover every row of the tables, and shrink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.fuzz.hunt import simplified
from tcdebug.fuzz.oracles import ProgramCall, loaded
from tcdebug.strategies.program import REQUIRING, Program
from tcdebug.strategies.programs import LONGEST, TABLES, programs
from tcdebug.strategies.row import Row
from tcdebug.strategies.scope import Scope, is_mistaken

ROWS = [(table, row) for table, rows in TABLES.items() for row in rows]


def drawn(
    count: int, rows: Sequence[Row] = (), start: int = 0, longest: int = LONGEST
) -> list[Program]:
    """The programs of one seed."""
    found: list[Program] = []

    @seed(start)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs(longest, rows))
    def draw(program: Program) -> None:
        found.append(program)

    draw()
    return found


def test_nearly_all_programs_run_in_eager_and_together_have_every_kind_of_argument() -> None:
    found = [p for start in range(3) for p in drawn(50, start=start)]
    assert len(found) == 150
    assert sum(1 for p in found if not p.invalid) >= 142
    text = "\n".join(p.source() for p in found)
    for part in (
        "bfloat16", "float16", "float64", "int8", "uint8", "bool", "complex64", ".mT", "[..., ::2]",
        ".expand(", "requires_grad_()", "float('nan')", "(0,", "torch.ones(())", "_(",
    ):  # fmt: skip
        assert part in text, part


def test_the_text_of_a_program_runs_and_gives_its_outputs() -> None:
    for program in drawn(60):
        if not program.invalid:
            names = loaded(program.source(), "program.py")
            outputs = names["Graph"]()(*names["inputs"]())
            assert len(outputs) == len(program.outputs)


def test_a_program_has_a_backward_whatever_it_divides_and_writes_to() -> None:
    names = ("linear", "scatter_add", "index_put_", "mul_", "floor_divide", "take_along", "mean")
    rows = [r for _, r in ROWS if r.name in names]
    found = [p for p in drawn(80, rows) if REQUIRING in p.source()]
    assert len(found) > 10
    for program in found:
        assert not program.invalid
        ProgramCall.in_eager(program, "program.py")


def test_equal_seeds_draw_equal_programs() -> None:
    assert [p.key for p in drawn(30, start=2)] == [p.key for p in drawn(30, start=2)]


@pytest.mark.sampled
@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{t}-{r.name}" for t, r in ROWS])
def test_a_row_draws_lines_that_eager_runs(table: str, row: Row) -> None:
    found = drawn(5, [row], longest=4)
    assert [p.invalid for p in found if p.invalid] == []


def test_eager_runs_a_branch_with_gradients_that_was_drawn_without_torchs_own() -> None:
    rows = [r for _, r in ROWS if r.name == "cond"]
    found = [p for p in drawn(12, rows, longest=2) if REQUIRING in p.source()]
    assert len(found) > 1
    for program in found:
        assert not program.invalid
        ProgramCall.in_eager(program, "program.py")


def lines(
    name: str, *arguments: str, examples: int = 30, gradients: bool = False
) -> tuple[list[str], set[torch.dtype]]:
    """Lines that a row draws for a program with these inputs, and the dtypes of all values."""
    row = next(r for _, r in ROWS if r.name == name)
    texts, dtypes = list[str](), set[torch.dtype]()

    @given(st.data())
    @settings(max_examples=examples, database=None, phases=[Phase.generate])
    def draw(data: st.DataObject) -> None:
        scope = Scope(data.draw, gradients=gradients)
        for argument in arguments:
            scope._argument(argument, "")
        texts.append(row.draw(scope))
        dtypes.update(value.tensor.dtype for value in scope.values)

    draw()
    return texts, dtypes


@pytest.mark.parametrize("name", ["split", "unbind"])
def test_a_tensor_of_thousands_of_parts_is_not_split_into_them(name: str) -> None:
    texts, _ = lines(name, "torch.zeros((1, 16385))", "torch.zeros((3, 5))")
    assert any(f"a1.{name}(" in text for text in texts)
    assert not any(text.startswith("a0") for text in texts)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_gradient_that_eager_rounds_to_float32_is_not_asked_of_doubles(gradients: bool) -> None:
    inputs = "torch.zeros((3, 5), dtype=torch.float64)", "torch.zeros((3, 5))"
    texts, _ = lines("hardsigmoid", *inputs, gradients=gradients)
    assert any("(a1)" in text for text in texts)
    assert any("(a0)" in text for text in texts) == (not gradients)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_new_input_is_suitable_for_the_line_that_needs_it(gradients: bool) -> None:
    _, dtypes = lines("hardsigmoid", examples=200, gradients=gradients)
    assert torch.float32 in dtypes
    assert (torch.float64 in dtypes) == (not gradients)


def test_gelu_is_not_asked_of_infinity() -> None:
    texts, _ = lines("gelu", "torch.full((3,), float('inf'))")
    assert any("nan_to_num(a0" in text for text in texts)
    assert not any("gelu(a0)" in text for text in texts)


@pytest.mark.parametrize("name", ["signbit", "copysign"])
def test_the_sign_of_a_nan_is_not_asked(name: str) -> None:
    texts, _ = lines(name, "torch.full((3,), float('nan'))", examples=60)
    asked = [text for text in texts if text.endswith("a0)")]
    assert asked == []


def test_rows_have_distinct_names() -> None:
    assert [n for n, count in Counter(row.name for _, row in ROWS).items() if count > 1] == []


def test_known_errors_of_autograd_on_inputs_that_share_memory_are_recognised() -> None:
    scope = Scope(lambda strategy: None)
    whole = scope._argument("torch.zeros((4, 3))", "")
    scope.alias(whole, "a0[:1]")
    for op, text in (("slice", "a1[:, 1:]"), ("add_", "a0.add_(1)"), ("add", "a1 + 1")):
        scope.add(op, text, exact=True)
    made = scope.values[2:]
    assert [is_mistaken(value, scope) for value in made] == [True, False, False]
    scope._argument("torch.zeros((4, 3))[1:]", "")
    scope._argument("torch.zeros((4, 3))", "")
    for op, text in (("add_", "a2.add_(1)"), ("add_", "a3.add_(1)")):
        scope.add(op, text, exact=True)
    assert [is_mistaken(value, scope) for value in scope.values[-2:]] == [True, False]


def test_a_float64_run_has_the_same_numbers_in_place_of_infinities() -> None:
    (row,) = (r for _, r in ROWS if r.name == "nan_to_num")
    texts = {s.text for p in drawn(60, [row], longest=1) for s in p.steps}
    limits = {t.partition(", ")[2] for t in texts}
    assert limits == {
        "",  # of float64
        "0.0, 3.4028234663852886e+38, -3.4028234663852886e+38)",
        "0.0, 3.3895313892515355e+38, -3.3895313892515355e+38)",
        "0.0, 65504.0, -65504.0)",
    }


def test_no_detached_view_is_returned_of_what_is_made_with_a_gradient() -> None:
    """If another view of the tensor is returned, AOTAutograd recreates it with an assertion."""
    scope = Scope(lambda strategy: None)
    scope._argument("torch.ones((4, 3), requires_grad=True)", "")
    for op, text in (
        ("mul", "a0 * 2"), ("detach", "v0.detach()"), ("permute", "v0.mT"),
        ("detach", "v2.detach()"), ("slice", "v1[1:]"), ("mul", "v3 * 2"),
        ("detach", "a0.detach()[1:]"),
    ):  # fmt: skip
        scope.add(op, text, exact=True)
    mistaken = [v.name for v in scope.values if is_mistaken(v, scope)]
    assert mistaken == ["v3", "v4"]


def test_a_program_with_two_given_operations_shrinks_to_these_two_and_one_element() -> None:
    def wanted(program: Program) -> bool:
        return not program.invalid and "tanh>sum" in program.pairs

    program = find(
        programs(rows=[r for _, r in ROWS if r.name in ("sum", "permute", "tanh", "mul", "cat")]),
        wanted,
        settings=settings(property_settings(1000), phases=[Phase.generate, Phase.shrink]),
    )  # fmt: skip
    program = simplified(program, wanted)
    assert program.ops == ("tanh", "sum")
    assert [a.text for a in program.arguments] == ["torch.ones(())"]
    assert [s.text.split("(")[0] for s in program.steps] == [
        "torch.tanh", f"{program.steps[0].result}.sum",
    ]  # fmt: skip
