"""What a script prints in eager and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.minifier.cases.criteria import Criteria, PrintedLine
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.repros.verify import verify
from tcdebug.minifier.subjects.printed import is_printed, line_to_print, printed_differences
from tcdebug.minifier.subjects.script import outcome_of

COMPILED = "epoch 0\nloss 0.50001\nseen ['a']\n"


@pytest.mark.parametrize(
    ("eager", "found"),
    [
        (COMPILED, ""),
        ("epoch 0\nloss 0.5\nseen ['a']\n", ""),
        ("epoch 0\nloss 0.7\nseen ['a']\n", "`loss 0.7` in eager, and `loss 0.50001` compiled"),
        ("epoch 0\nloss 0.5\nseen ['b']\n", "`seen ['b']` in eager, and `seen ['a']` compiled"),
        ("epoch 0\nhook\nloss 0.5\nseen ['a']\n", "`hook` in eager only"),
        ("loss 0.5\nseen ['a']\n", ""),
        ("epoch 0\nloss nan\nseen ['a']\n", "`loss nan` in eager, and `loss 0.50001` compiled"),
        ("a.py:3: UserWarning: slow\nepoch 0\nloss 0.5\nseen ['a']\n", ""),
    ],
)
def test_lines_that_differ_by_more_than_rounding_are_found(eager: str, found: str) -> None:
    assert [str(d) for d in printed_differences(eager, COMPILED, COMPILED)] == [found] * bool(found)


def differences(eager: str, compiled: str, again: str) -> list[str]:
    return [str(d) for d in printed_differences(eager, compiled, again)]


def test_all_differences_are_found_in_the_order_of_eager() -> None:
    assert differences("a\nloss 1\nb\nc\n", "loss 2\nb\nd\n", "loss 2\nb\nd\n") == [
        "`a` in eager only",
        "`loss 1` in eager, and `loss 2` compiled",
        "`c` in eager, and `d` compiled",
    ]


def test_long_outputs_are_compared_at_their_beginnings_and_ends() -> None:
    steps = "".join(f"step {n} loss {n / 7}\n" for n in range(20_000))
    assert differences(f"{steps}best 3\n", f"{steps}best 4\n", f"{steps}best 4\n") == [
        "`best 3` in eager, and `best 4` compiled"
    ]
    words = "".join(f"{'ab'[n % 2]}\n" for n in range(4_000))
    assert differences(f"x\n{words}y\n", f"{words}z\n", f"{words}z\n") == []


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        ("tensor([1.], grad_fn=<AddBackward0>)", "tensor([1.], grad_fn=<CompiledBackward>)"),
        ("tensor([1.], grad_fn=<AddBackward0>)", "tensor([1.],\n  grad_fn=<CompiledBackward>)"),
        ("<AddBackward0 object at 0x7f1>", "<torch.autograd.FBackward object at 0x7f2>"),
        ("f at 0x7f1", "f at 0x7fa2"),
    ],
)
def test_names_of_autograd_and_addresses_are_no_differences(eager: str, compiled: str) -> None:
    assert differences(f"{eager}\nb\n", f"{compiled}\nb\n", f"{compiled}\nb\n") == []
    assert differences("tensor([2.], grad_fn=<A>)\n", f"{compiled}\n", f"{compiled}\n") != []


@pytest.mark.parametrize(
    ("eager", "compiled", "counts"),
    [
        ("saved tensors: 5", "saved tensors: 3", True),
        ("saved [(4, 8), (8, 8)]", "saved [(4, 8)]", True),
        ("loss 0.5, 5 saved", "loss 0.5, 3 saved", True),
        ("[aten.sin.default]", "[]", True),
        ("hook\nhook", "hook", True),
        ("loss 0.5", "loss 0.75", False),
        ("hook", "other", False),
        ("ok", "MISMATCH", False),
        ("tensor([1, 2])", "tensor([1, 3])", False),
        ("torch.Size([2])", "torch.Size([3])", False),
        ("maximum 0.5", "maximum 3", False),
        ("hook", "", False),
    ],
)
def test_only_whole_numbers_outside_of_tensors_and_repeated_lines_may_be_counts(
    eager: str, compiled: str, counts: bool
) -> None:
    found = printed_differences(f"{eager}\nb\n", f"{compiled}\nb\n", f"{compiled}\nb\n")
    assert [difference.counts for difference in found] == [counts]


def test_lines_that_differ_from_run_to_run_are_not_compared() -> None:
    first, again = "took 9.5 s\nloss 0.5\n", "took 8.1 s\nloss 0.5\n"
    assert differences("took 1.5 s\nloss 0.5\n", first, again) == []
    assert differences("took 1.5 s\nloss 0.7\n", first, again) == [
        "`loss 0.7` in eager, and `loss 0.5` compiled"
    ]


@pytest.mark.parametrize(
    "line",
    ["took 1.5 s", "2x", "speedup: 1", "Time: 3", "12.5 ms", "peak memory 3", "5 it/s", "1.2 GiB"],
)
def test_a_measurement_is_no_line_that_must_be_printed(line: str) -> None:
    assert line_to_print(line, f"{line}\n") is None


def test_a_line_must_be_printed_as_often_as_in_eager_up_to_rounding() -> None:
    wanted = line_to_print("loss 0.5", "loss 0.5\nloss 0.50001\nloss 0.7\n")
    assert wanted is not None
    assert (wanted.text, wanted.times) == ("loss 0.5", 2)
    assert is_printed(wanted, "loss 0.49999\nok\nloss 0.5\n")
    assert not is_printed(wanted, "loss 0.5\nloss 0.7\n")


MUST_PRINT = PrintedLine("loss 0.5 of a", 2)


def test_a_script_that_ends_well_without_its_line_is_wrong() -> None:
    wrong = Outcome(
        Kind.WRONG, "script", "script | it does not print | loss 0.5 of a",
        "it does not print `loss 0.5 of a` as it does in eager",
    )  # fmt: skip
    assert outcome_of(0, "loss 0.5 of a\nloss 0.6 of a\n", MUST_PRINT) == wrong
    assert outcome_of(0, "loss 0.5 of a\nloss 0.50001 of a\n", MUST_PRINT) == Outcome(
        Kind.OK, "script"
    )
    assert outcome_of(3, "", MUST_PRINT).kind is Kind.EXCEPTION, "how it ends comes first"


@pytest.mark.usefixtures("warm")
def test_a_repro_fails_while_its_script_does_not_print_the_line(tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    job = Job("search", str(script), [], str(tmp_path), wanted=Criteria(prints=MUST_PRINT))
    path = tmp_path / "repro.py"

    def status(text: str) -> int:
        script.write_text(text)
        write_repro(job, outcome_of(0, "", MUST_PRINT), [], path)
        return verify(path).status

    assert status("print('loss 0.5 of a')\nprint('loss 0.49999 of a')") == 0
    assert status("print('loss 0.5 of a\\nloss 0.4 of a\\nloss 0.5 of b')") == 1
    assert status("raise SystemExit(3)") == 125, "it ends in a different way"


@pytest.mark.parametrize(
    ("compiled", "found"),
    [
        ("b ok\na ok\n", []),
        ("b ok\na wrong\n", ["`a ok` in eager only"]),
        ("b ok\nb ok\n", ["`a ok` in eager, and `b ok` compiled"]),
    ],
)
def test_lines_of_several_processes_may_come_in_another_order(
    compiled: str, found: list[str]
) -> None:
    differences = printed_differences("a ok\nb ok\n", compiled, compiled, ordered=False)
    assert [str(d) for d in differences] == found
    assert printed_differences("a ok\nb ok\n", compiled, compiled)
