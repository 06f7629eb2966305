"""Graphs whose compiler draws its own random numbers are judged by all but the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured
from torch import fx
from torch._inductor.compile_fx import compile_fx

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.judging.own_draws import difference_of_draws
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.targets.backends import Backend

Change = Callable[[torch.Tensor], Any]
ONES, INFINITE = torch.ones(2), torch.tensor([1.0, torch.inf])
SEEDED = {1234: ONES, 1235: INFINITE, 1236: ONES}
"""The results of a program that is infinite for one seed."""


def judged(
    change: Change, folder: Path, function: Callable[..., Any], *, own: bool = True
) -> Outcome:
    """Judge a backend that draws other numbers than eager and changes the results."""

    def backend(
        module: fx.GraphModule, inputs: Sequence[Any], options: Any = None
    ) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            torch.rand(1)
            return [change(v) for v in module(*values)]

        return call

    target = Backend(backend, "planted", options={"fallback_random": not own})
    case = captured(function, torch.ones(4, 3))
    return judge(case, target, Toggles(), lambda phase: None, str(folder / "case.py"))


def test_only_the_values_of_other_random_numbers_may_differ(tmp_path: Path) -> None:
    assert not judged(lambda v: v, tmp_path, torch.rand_like).failed
    compared = judged(lambda v: v, tmp_path, torch.rand_like, own=False)
    assert compared.signature == "forward | wrong value"


def test_the_values_of_a_graph_that_draws_nothing_are_compared(tmp_path: Path) -> None:
    outcome = judged(lambda v: v + 1, tmp_path, torch.sin)
    assert (outcome.signature, outcome.drew) == ("forward | wrong value", False)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda v: v.double(), "dtype"),
        (lambda v: v[1:], "shape"),
        (lambda v: v.sum().item(), "kind"),
        (lambda v: v / torch.tensor([1.0, 0.0, 1.0]), "nonfinite"),
    ],
)
def test_properties_that_do_not_depend_on_random_numbers_are_compared(
    change: Change, what: str, tmp_path: Path
) -> None:
    outcome = judged(change, tmp_path, torch.rand_like)
    assert (outcome.signature, outcome.drew) == (f"forward | wrong {what}", True)


def test_a_custom_backend_built_on_inductor_draws_the_random_numbers_of_eager(
    tmp_path: Path,
) -> None:
    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = compile_fx(module, inputs)
        return compiled

    target = Backend(backend, "planted")
    case = captured(lambda x: torch.rand_like(x) + x, torch.ones(4, 3))
    outcome = judge(case, target, Toggles(), lambda phase: None, str(tmp_path / "case.py"))
    assert not outcome.failed, outcome.message


def test_zero_drawn_numbers_are_drawn_too(tmp_path: Path) -> None:
    assert judged(lambda v: v, tmp_path, lambda x: torch.rand(0, 3) + x[:0]).drew


def test_a_value_is_wrong_only_if_it_is_infinite_for_every_seed() -> None:
    eager = [[ONES]] * 3
    assert difference_of_draws(eager, [[v] for v in SEEDED.values()], "output") is None
    found = difference_of_draws(eager, [[INFINITE]] * 3, "output")
    assert found is not None
    assert found.what == "nonfinite"


def test_a_value_that_is_infinite_in_eager_for_one_seed_may_be_infinite() -> None:
    eager = [[v] for v in SEEDED.values()]
    assert difference_of_draws(eager, [[INFINITE]] * 3, "output") is None


def test_a_single_run_does_not_tell_whether_values_are_finite() -> None:
    assert difference_of_draws([[ONES]], [[INFINITE]], "output") is None
