"""The oracles on handwritten programs: failures, differences explained by rounding, passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.fuzz.oracles import judge
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.program import Argument, Program, ProgramStep

NOISE = "torch.randn((64,), generator=torch.Generator().manual_seed(0))"


def program(text: str, argument: str = NOISE, exact: bool = False) -> Program:
    """A program of one line."""
    return Program(
        (Argument("a0", argument, argument),), (ProgramStep("v0", text, "row"),), ("v0",),
        ("v0",) if exact else (),
    )  # fmt: skip


@dataclass
class Broken:
    """A target that changes eager's results and counts as a compile."""

    change: Callable[[Any], Any]
    name: str = "broken"
    compiles: int = 1
    late: int = 0
    """The number of the call that compiles again."""
    of_inputs: bool = False
    """Whether the results of the inputs take the place of eager's results."""
    calls: list[int] = field(default_factory=list)

    @contextmanager
    def compiled(
        self, module: torch.nn.Module, toggles: Toggles, notify: Callable[[str], None]
    ) -> Iterator[Callable[..., Any]]:
        """Eager with a change."""

        def call(*args: Any) -> Any:
            self.calls.append(1)
            if len(self.calls) <= self.compiles or len(self.calls) == self.late:
                notify("compile")
            notify("forward")
            return tuple(self.change(v) for v in (args if self.of_inputs else module(*args)))

        yield call

    def keeping(self, folder: Path) -> Broken:
        """This target."""
        return self

    def in_one_process(self) -> Broken:
        """This target."""
        return self

    @property
    def draws_as_eager(self) -> bool:
        return True

    def added(self) -> dict[str, Any]:
        return {}

    def call(self) -> dict[str, Any]:
        """Nothing that a repro could use."""
        return {"backend": None}


def verdict(text: str, change: Callable[[Any], Any], **more: Any) -> ProgramVerdict:
    """The verdict on a program whose results are changed."""
    return judge(program(text, **more), Broken(change), lambda phase: None, Path("."))


@pytest.mark.parametrize(
    ("change", "signature"),
    [
        (lambda v: v * 1.01, "forward | wrong value"),
        (lambda v: v.double(), "forward | wrong dtype"),
        (lambda v: v[:-1], "forward | wrong shape"),
        (lambda v: torch.where(v > 0, v, torch.nan), "forward | wrong nan"),
        (lambda v: torch.stack((v, v), 1)[:, 0], "forward | wrong strides"),
    ],
)
def test_a_change_of_the_result_is_a_failure(change: Callable[[Any], Any], signature: str) -> None:
    found = verdict("a0 * 2", change)
    assert (found.status, found.signature) == (Status.FAILED, signature)


def test_strides_that_the_fake_kernels_of_torch_have_too_are_no_fault_of_a_backend() -> None:
    columns, by_rows = "a0.view(8, 8).mT, torch.ones(())", torch.Tensor.contiguous
    faked = verdict(f"torch.floor_divide({columns})", by_rows)
    assert faked.status is Status.DISCARDED
    assert "fake kernels" in faked.message
    body = "lambda i, t: i < 0, lambda i, t: (i + 1, t.sin())"
    loop = f"torch.while_loop({body}, (torch.ones(()), a0))[1]"
    behind = verdict(f"torch.floor_divide({columns.replace('a0', loop)})", by_rows)
    assert behind.status is Status.DISCARDED
    other = verdict(f"torch.sub({columns})", by_rows)
    assert other.signature == "forward | wrong strides"


@pytest.mark.parametrize("factors", ["[torch.inf]", "[2.0, torch.inf]"])
@pytest.mark.parametrize("name", ["prod()", "prod(-1)"])
def test_a_gradient_that_eager_has_where_it_is_traced_is_no_fault_of_a_backend(
    factors: str, name: str
) -> None:
    """Eager's gradient of a product divides by the input; its other one multiplies the factors."""

    def compiled(value: torch.Tensor) -> torch.Tensor:
        return value[0] if value.numel() == 1 else value[0] * value[1]

    def judged(change: Callable[[Any], Any]) -> ProgramVerdict:
        made = program(f"a0.{name}", f"torch.tensor({factors}).requires_grad_()")
        return judge(made, Broken(change, of_inputs=True), lambda phase: None, Path("."))

    traced = judged(compiled)
    assert (traced.status, "where it is traced" in traced.message) == (Status.DISCARDED, True)
    other = judged(lambda value: 2 * compiled(value))
    assert (other.status, other.signature[:16]) == (Status.FAILED, "backward | wrong")


def test_a_gradient_that_only_the_formula_of_tracing_spoils_is_a_failure() -> None:
    """Where it is traced, the gradient of `max` multiplies by a mask, here zero by infinity."""
    made = program("a0.max() * torch.inf", "torch.tensor([1.0, 2.0]).requires_grad_()")
    masked = Broken(lambda value: (value * (value == value.max())).sum() * torch.inf)
    found = judge(made, replace(masked, of_inputs=True), lambda phase: None, Path("."))
    assert (found.status, found.signature) == (Status.FAILED, "backward | wrong nan")


def test_a_view_of_an_input_in_eager_must_be_one_when_compiled() -> None:
    found = verdict("a0[1:]", lambda v: v.clone())
    assert found.signature == "forward | wrong aliasing"


def test_a_result_within_the_rounding_of_eager_passes() -> None:
    assert verdict("torch.sin(a0)", lambda v: v * (1 + 2e-7)).status is Status.PASSED


def test_a_flip_behind_a_close_comparison_is_discarded_and_one_without_rounding_fails() -> None:
    ties = "torch.ones((4,))"
    chaotic = verdict("torch.sin(a0) >= 0.8414709848", lambda v: ~v, argument=ties)
    assert chaotic.status is Status.DISCARDED
    exact = verdict("a0 >= 1.0", lambda v: ~v, argument=ties, exact=True)
    assert (exact.status, exact.signature) == (Status.FAILED, "forward | wrong value")


def test_values_that_only_eagers_rounding_distinguishes_may_be_equal() -> None:
    """A mean of all but one element: no noise in the inputs makes the rest zero."""
    sevenths = "torch.tensor([0.1] * 7 + [0.3] * 200)"
    rest = "torch.logical_not(a0 - a0[:7].sum() / 7)"
    assert not eval(rest, {"torch": torch, "a0": eval(sevenths)}).any()
    equal = torch.tensor([True] * 7 + [False] * 200)
    found = verdict(rest, lambda v: equal, argument=sevenths)
    assert found.status is Status.DISCARDED
    other = verdict(rest, lambda v: ~equal, argument=sevenths)
    assert other.signature == "forward | wrong value"


def test_a_result_that_is_better_than_eagers_passes_beside_random_numbers() -> None:
    """In bfloat16, eager rounds -log(1 + exp(-6)) to 0; a float64 run has other random numbers."""
    rows = "torch.tensor([[6.0, 0.0]] + [[1.0, 0.0]] * 99, dtype=torch.bfloat16)"
    beside = "torch.log_softmax(a0, 1) + (torch.rand_like(a0) < -1)"
    assert eval("torch.log_softmax(a0, 1)[0, 0]", {"torch": torch, "a0": eval(rows)}) == 0
    right = torch.tensor([[-0.002476, -6.0]] + [[-0.3125, -1.3125]] * 99, dtype=torch.bfloat16)
    assert verdict(beside, lambda v: right, argument=rows).status is Status.PASSED
    wrong = verdict(beside, lambda v: right * 3, argument=rows)
    assert wrong.signature == "forward | wrong value"


def test_an_overflow_that_only_eager_has_is_not_a_fault() -> None:
    """If two elements are the largest float, eager's variance is infinite."""
    most = torch.finfo(torch.float32).max
    largest = "torch.tensor([float('inf'), float('inf')])"
    spread = f"torch.nan_to_num(a0, 0.0, {most!r}).var(-1)"
    assert eval(spread, {"torch": torch, "a0": eval(largest)}).isinf()
    assert verdict(spread, torch.zeros_like, argument=largest).status is Status.PASSED


def test_the_rounding_of_integers_to_floats_may_explain_a_difference() -> None:
    """cos of exp(8) changes by 1e-4 if exp changes in its last place."""
    integers = "torch.tensor([8, 0, 7, -9])"
    off = torch.tensor([5e-4, 1e-7, 0.0, 0.0])
    rounded = verdict("torch.cos(torch.exp(a0))", lambda v: v + off, argument=integers)
    assert rounded.status is Status.DISCARDED
    wrong = verdict("torch.cos(torch.exp(a0))", lambda v: v + 1e-2, argument=integers)
    assert (wrong.status, wrong.signature) == (Status.FAILED, "forward | wrong value")


def test_other_answers_for_the_same_inputs_are_a_failure() -> None:
    generator = torch.Generator().manual_seed(0)
    found = verdict("a0 * 2", lambda v: v * (1 + 1e-7 * torch.rand((), generator=generator)))
    assert found.signature == "forward | not the same twice"


def test_a_compile_for_inputs_that_it_was_compiled_for_is_a_failure() -> None:
    target = Broken(lambda v: v, compiles=2)
    found = judge(program("a0 * 2"), target, lambda phase: None, Path("."))
    assert found.signature == "forward | recompile"


def test_a_program_that_eager_takes_long_for_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tcdebug.fuzz.oracles.SLOW_EAGER", 0.0)
    found = verdict("a0 * 2", lambda v: v * 1.01)
    assert (found.status, found.message) == (Status.DISCARDED, "eager takes 0 s")


def test_results_must_agree_with_units_off_and_on() -> None:
    @dataclass
    class WrongWithAllOn(Broken):
        def compiled(self, module: Any, toggles: Toggles, notify: Any) -> Any:
            scale = 1.0 if toggles.texts() else 1.01
            return Broken(lambda v: v * scale).compiled(module, toggles, notify)

    without = msgspec.structs.replace(program("a0 * 2"), off=("fuse",))
    found = judge(without, WrongWithAllOn(lambda v: v), lambda phase: None, Path("."))
    assert (found.status, found.signature) == (
        Status.FAILED, "forward | wrong value with units on",
    )  # fmt: skip


def test_sizes_that_were_called_with_do_not_compile_again() -> None:
    dynamic = msgspec.structs.replace(program("a0 * 2"), dynamic=True)
    target = Broken(lambda v: v, compiles=4)
    found = judge(dynamic, target, lambda phase: None, Path("."))
    assert (found.signature, found.message) == ("forward | recompile", "for the same sizes")
    late = Broken(lambda v: v, compiles=1, late=4)
    found = judge(dynamic, late, lambda phase: None, Path("."))
    assert found.message == "for sizes that both calls had"


def test_a_program_that_eager_rejects_is_discarded() -> None:
    assert verdict("a0 @ a0.unsqueeze(0).sum(2)", lambda v: v).status is Status.INVALID
