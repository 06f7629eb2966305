"""A program in eager: the user's torch.compile does nothing, and torch's own use of it works."""

from __future__ import annotations

import copy
import functools
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog, recorded
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture import identity
from tcdebug.minifier.capture.identity import compile_is_identity
from tcdebug.minifier.capture.layers_off import layers_off
from tcdebug.minifier.targets.interception import compile_patched
from tcdebug.minifier.trace.layers_seen import asked_at, layers_seen

imported_before = torch.compile


@pytest.fixture
def eager() -> Iterator[None]:
    """Make the user's torch.compile do nothing during the test."""
    torch._dynamo.reset()
    with compile_is_identity(EventLog(None)):
        yield


def noting(seen: list[bool]) -> torch.Tensor:
    """Record whether Dynamo captures this call."""
    seen.append(torch.compiler.is_compiling())
    return torch.ones(2)


class Noting(torch.nn.Module):
    """A module that records whether Dynamo captures its call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, seen: list[bool]) -> torch.Tensor:
        """Record it."""
        return noting(seen)


def in_place() -> torch.nn.Module:
    module = Noting()
    module.compile()
    return module


def nested() -> Callable[..., Any]:
    return torch.compile(torch.compile(noting))


WAYS: dict[str, Callable[[], Callable[..., Any]]] = {
    "a function": lambda: torch.compile(noting),
    "a decorator with arguments": lambda: torch.compile(fullgraph=True)(noting),
    "partial": lambda: functools.partial(torch.compile, dynamic=True)(noting),
    "imported before": lambda: imported_before(noting),
    "torch.compiler": lambda: torch.compiler.compile(noting),
    "a module": lambda: torch.compile(Noting()),
    "a module in place": in_place,
    "a bound method": lambda: torch.compile(Noting().forward),
    "twice": nested,
    "torch._dynamo.optimize": lambda: torch._dynamo.optimize("eager")(noting),
    "another thread": lambda: in_another_thread(lambda: torch.compile(noting)),
}


def in_another_thread(call: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_nothing_that_the_user_compiles_is_compiled(make: Callable[[], Callable[..., Any]]) -> None:
    seen: list[bool] = []
    assert make()(seen).tolist() == [1.0, 1.0]
    assert seen == [False]


@pytest.fixture(autouse=True, scope="module")
def known_to_dynamo() -> None:
    """Let Dynamo look up `is_compiling`, once in a process, before a test replaces it."""
    asks = torch.compile(lambda x: x + torch.compiler.is_compiling(), backend="eager")
    assert asks(torch.zeros(1)).item() == 1.0


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_a_program_can_hear_in_eager_that_it_is_compiled(
    make: Callable[[], Callable[..., Any]],
) -> None:
    seen: list[bool] = []
    torch._dynamo.reset()
    with compile_is_identity(EventLog(None), told=True):
        make()(seen)
        noting(seen)
    assert seen == [True, False]


def test_each_line_that_hears_so_is_logged_once(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with compile_is_identity(EventLog(tmp_path), told=True):
        twice = torch.compile(lambda seen: [noting(seen), noting(seen)])
        twice([])
    (line,) = asked_at(tmp_path)
    assert line.endswith("in noting: seen.append(torch.compiler.is_compiling())")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from torch.compiler import is_compiling", {"layer.own_branches"}),
        ("NAMES = 'is_compiling_slowly'", set()),
    ],
)
def test_a_module_that_may_ask_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: set[str]
) -> None:
    name = f"asking_{bool(found)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with layers_off(Toggles.parse(["layer.dynamo"]), EventLog(tmp_path)):
        importlib.import_module(name)
    assert layers_seen(tmp_path) == found


def test_calls_can_take_longer_in_eager_the_first_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FIRST_LONGER", 0.2)
    monkeypatch.setattr(identity, "LATER_LONGER", 0.05)
    torch._dynamo.reset()
    took = []
    with compile_is_identity(EventLog(None), lasting=True):
        function = torch.compile(lambda x: x + 1)
        for _ in range(2):
            begin = time.perf_counter()
            assert function(1) == 2
            took.append(time.perf_counter() - begin)
    assert took[0] >= 0.2
    assert took[1] >= 0.05


def test_torch_does_not_hear_that_it_is_compiled() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        assert torch.compiler.is_dynamo_compiling()
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    torch._dynamo.reset()
    with compile_is_identity(EventLog(None), told=True):
        assert torch.compile(function)(torch.zeros(1)).item() == 1.0


@pytest.mark.usefixtures("eager")
def test_a_module_looks_compiled() -> None:
    module = torch.compile(Noting())
    assert isinstance(module, torch._dynamo.OptimizedModule)
    assert list(module.state_dict()) == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert copy.deepcopy(module)([]).tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("eager")
def test_a_compiled_method_is_still_a_method() -> None:
    class Counter:
        total = 2

        @torch.compile
        def plus(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.total

    assert Counter().plus(torch.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.usefixtures("eager")
def test_compiled_autograd_compiles_nothing() -> None:
    x = torch.ones(2, requires_grad=True)

    def forbidden(graph: torch.fx.GraphModule) -> Any:
        raise AssertionError(graph)

    with torch._dynamo.compiled_autograd._enable(forbidden):
        (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def cond_backward() -> torch.Tensor:
    x = torch.full((2,), 2.0, requires_grad=True)
    result = torch.cond(x.sum() > 0, lambda t: t * t, lambda t: -t, (x,))
    result.sum().backward()
    assert x.grad is not None
    return x.grad  # 2x


def running_sum(xs: torch.Tensor) -> torch.Tensor:
    def step(carry: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry + x, (carry + x).clone()

    return scan(step, torch.zeros(()), xs)[1]


def scan_backward() -> torch.Tensor:
    xs = torch.ones(2, requires_grad=True)
    running_sum(xs).sum().backward()
    assert xs.grad is not None
    return xs.grad * 2 + torch.tensor([0.0, 2.0])


def flex() -> torch.Tensor:
    q = torch.ones(1, 1, 2, 16)
    return flex_attention(q, q, q * 4)[0, 0, 0, :2]


CONTROL: dict[str, Callable[[], torch.Tensor]] = {
    "cond": cond_backward,
    "map": lambda: torch_map(lambda x: x * 4, torch.ones(2)),
    "associative_scan": lambda: associative_scan(
        torch.mul, torch.tensor([4.0, 1.0]), 0, combine_mode="generic"
    ),
    "while_loop": lambda: while_loop(lambda x: x.sum() < 8, lambda x: (x * 2,), (torch.ones(2),))[
        0
    ],
    "flex_attention": flex,
    "checkpoint": lambda: torch.utils.checkpoint.checkpoint(
        torch.compile(lambda x: x * 4), torch.ones(2), use_reentrant=False
    ),
}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "call",
    [
        *(pytest.param(call, id=name) for name, call in CONTROL.items()),
        pytest.param(
            scan_backward, id="scan", marks=needs_torch("2.13", "scan loses a gradient in eager")
        ),
    ],
)
@pytest.mark.parametrize("compile_it", [False, True], ids=["outside", "under torch.compile"])
def test_torch_compiles_for_its_own_purposes(
    call: Callable[[], torch.Tensor], compile_it: bool
) -> None:
    made = torch.compile(call)() if compile_it else call()
    assert made.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("cond", {"layer.dynamo.operators"}), ("map", {"layer.dynamo.operators"}),
        ("while_loop", {"layer.dynamo.operators"}), ("checkpoint", set()),
    ],
)  # fmt: skip
def test_an_operator_that_torch_captures_in_eager_is_noticed_whoever_calls_it(
    tmp_path: Path, name: str, found: set[str]
) -> None:
    torch._dynamo.reset()
    with compile_is_identity(EventLog(tmp_path)):
        for _ in range(2):
            torch.compile(CONTROL[name])()
    assert layers_seen(tmp_path) == found
    assert len(list(recorded(tmp_path))) == len(found)


def test_the_backends_that_torch_gives_itself_are_left_alone() -> None:
    given: list[Any] = []

    def wrap(backend: Any) -> Any:
        given.append(backend)
        return "eager"

    with compile_patched(wrap, EventLog(None)):
        assert cond_backward().tolist() == [4.0, 4.0]
        assert given == []
        assert torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1)).tolist() == [2.0]
    assert len(given) == 1
