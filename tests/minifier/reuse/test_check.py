"""Missing guards are found if Dynamo lacks one, and named with the value; correct reuse passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CallChecked, GuardMissing
from tcdebug.minifier.reuse.check import GuardCheck
from tests.minifier.support.changed_values import CHANGED
from tests.minifier.support.stale_reuse import STALE, Compile, Scenario


class Kept(EventLog):
    """A log whose events can be read."""

    def __init__(self) -> None:
        super().__init__(None)
        self.events: list[Event] = []

    def emit(self, event: Event, **context: Any) -> None:
        self.events.append(event)


def checked(scenario: Callable[[Compile], Any], **options: Any) -> list[Event]:
    """Return what the check reports about a scenario, apart from the calls that it counts."""
    log = Kept()
    check = GuardCheck(log)
    torch._dynamo.reset()
    random.seed(0)
    backend = check.graphs.wrap("eager", lambda given: lambda module, inputs: module)
    with check.watching():
        scenario(lambda function: torch.compile(function, backend=backend, **options))
    return [event for event in log.events if not isinstance(event, CallChecked)]


@pytest.mark.sampled
@pytest.mark.parametrize("scenario", STALE, ids=lambda s: s.__name__)
def test_a_guard_that_dynamo_lacks_is_found_at_the_wrong_call(scenario: Scenario) -> None:
    events = checked(scenario)
    if not events and torch.__version__ < "2.12":
        pytest.skip("this torch guards the value")
    (found,) = events
    assert isinstance(found, GuardMissing)
    assert found.call == 2
    assert found.where.startswith("result")
    assert found.reused != found.fresh
    assert found.changed


def test_a_finding_names_the_value_the_line_and_both_operations() -> None:
    (found,) = checked(STALE[0])
    assert isinstance(found, GuardMissing)
    assert found.frame.startswith("fn (")
    assert found.changed == [
        "function.op: method_descriptor TensorBase.add -> method_descriptor TensorBase.mul"
    ]
    assert found.line.endswith(": z = op(y, x)  # stale")
    assert (found.reused, found.fresh) == ("add(%1, %0)", "mul(%1, %0)")


def no_guards(entries: Any) -> list[bool]:
    return [False for _ in entries]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("scenario", "changed"), CHANGED, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_changed_value_of_each_kind_is_found_without_its_guards(
    scenario: Callable[[Compile], Any], changed: str
) -> None:
    (found,) = checked(scenario, options={"guard_filter_fn": no_guards})
    assert isinstance(found, GuardMissing)
    assert any(text.startswith(changed) for text in found.changed), found.changed
    assert checked(scenario) == []


def sizes(compiled: Compile) -> None:
    """Sizes: first static, then dynamic, and a guard on a size."""
    once = compiled(lambda x: x.sum() * 2 if x.shape[0] % 2 == 0 else x / x.shape[0])
    for size in (2, 3, 4, 7, 8, 1):
        once(torch.randn(size))


def numbers(compiled: Compile) -> None:
    """Python numbers as arguments, which become symbols, and tensors."""
    once = compiled(lambda x, n, s: x * s if n > 2 else x + n)
    for n in range(5):
        once(torch.ones(3), n, n / 3)


def training(compiled: Compile) -> None:
    """A step with dropout, batch norm and an optimizer, in float32."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    once, step = compiled(model), compiled(lambda: optimizer.step())
    for rate in (0.1, 0.1, 0.5):
        optimizer.param_groups[0]["lr"] = rate
        once(torch.randn(3, 4)).square().mean().backward()
        step()
        optimizer.zero_grad()


def side_effects(compiled: Compile) -> None:
    """What a call writes: lists, attributes, and a growing cache."""
    log: list[Any] = []

    class Cached(torch.nn.Module):
        cache: Any = None
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.cache = x if self.cache is None else torch.cat([self.cache, x])
            log.append(self.calls)
            return self.cache.sum(0)

    once = compiled(Cached())
    for _ in range(4):
        once(torch.ones(1, 3))


def random_numbers(compiled: Compile) -> None:
    """Random numbers of torch and of Python, and a graph break."""

    def fn(x: Any) -> Any:
        y = torch.nn.functional.dropout(x, 0.5) * random.random()
        torch._dynamo.graph_break()
        return y + torch.rand(3)

    once = compiled(fn)
    for _ in range(3):
        once(torch.ones(3))


@pytest.mark.sampled
@pytest.mark.parametrize("scenario", [sizes, numbers, training, side_effects, random_numbers])
def test_correct_reuse_is_not_reported(scenario: Callable[[Compile], Any]) -> None:
    assert checked(scenario) == []


def test_a_checked_program_computes_the_same_as_an_unchecked_one() -> None:
    def program(compiled: Compile) -> list[Any]:
        torch.manual_seed(0)
        log: list[int] = []

        def fn(x: Any) -> Any:
            log.append(len(log))
            return torch.nn.functional.dropout(x, 0.5) + len(log)

        once = compiled(fn)
        return [*(once(torch.ones(4)).tolist() for _ in range(3)), log]

    seen: list[Any] = []
    checked(lambda compiled: seen.append(program(compiled)))
    torch._dynamo.reset()
    assert seen == [program(lambda function: torch.compile(function, backend="eager"))]


def test_equal_backends_stay_equal_so_that_dynamo_shares_their_graphs() -> None:
    graphs = GuardCheck(Kept()).graphs
    wrapped = [
        graphs.wrap(torch._TorchCompileWrapper("eager", None, None, None), lambda given: given)
        for _ in range(2)
    ]
    assert wrapped[0] is wrapped[1]
