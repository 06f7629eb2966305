"""What explain advises about a recompile, followed: the recompile is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.display.text import clipped
from tcdebug.minifier.trace.torch_trace import traced
from tcdebug.reading.advice import ADVICE, advice, cause
from tcdebug.reading.explanation import RecompileCost, explain
from tcdebug.reading.run_dir import find

Program = Callable[[], None]


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


class Counter(torch.nn.Module):
    """A module that counts its calls, in a number or in a buffer."""

    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.count: Any = 0
        if buffer:
            del self.count
            self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


def counts(*, buffer: bool) -> None:
    f = compiled(Counter(buffer=buffer))
    for _ in range(4):
        f(torch.ones(3))


def scales(numbers: tuple[Any, ...], **options: Any) -> None:
    f = compiled(lambda x, n: x * n, **options)
    for number in numbers:
        f(torch.ones(3), number)


FACTOR = 1


def scales_by_a_global() -> None:
    global FACTOR
    f = compiled(lambda x: x * FACTOR)
    for number in (2, 3, 4):
        FACTOR = number
        f(torch.ones(3))


def adds_by_mode(*, apart: bool) -> None:
    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def minus(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    if apart:
        table = {"plus": compiled(plus), "minus": compiled(minus)}
        for mode in ("plus", "minus", "plus"):
            table[mode](torch.ones(3))
        return
    f = compiled(lambda x, mode: plus(x) if mode == "plus" else minus(x))
    for mode in ("plus", "minus"):
        f(torch.ones(3), mode)


def adds_by_flag() -> None:
    f = compiled(lambda x, flag: x + 1 if flag else x - 1)
    for flag in (True, False):
        f(torch.ones(3), flag)


def sums(*, stacked: bool) -> None:
    f = compiled(lambda xs: xs.sum(0), dynamic=True) if stacked else compiled(sum)
    for count in (2, 3, 5):
        xs = [torch.ones(7, 9)] * count
        f(torch.stack(xs) if stacked else xs)


def calls(tensors: Callable[[], list[torch.Tensor]], **options: Any) -> None:
    f = compiled(lambda x: x * 2, **options)
    for tensor in tensors():
        f(tensor)


def sized(*, marked: bool) -> list[torch.Tensor]:
    tensors = [torch.ones(n, 4) for n in (4, 5, 6)]
    for tensor in tensors if marked else ():
        torch._dynamo.mark_dynamic(tensor, 0)
    return tensors


def graded(*, same: bool) -> None:
    f = compiled(lambda x: x * 2)
    f(torch.ones(3))
    with torch.set_grad_enabled(same):
        f(torch.ones(3))


def applies(*, same: bool) -> None:
    f = compiled(lambda x, g: g(x))
    known = [lambda x: x + 1, lambda x: x + 1]
    for function in (known[0], known[0 if same else 1]):
        f(torch.ones(3), function)


def adds_values(*keys: str) -> None:
    f = compiled(lambda x, d: x + sum(d.values()))
    for key in keys:
        f(torch.ones(3), {key: torch.ones(3)})


X = torch.ones(4, 4)
CASES: dict[str, tuple[Program, Program, str]] = {
    "a counter on a module": (
        lambda: counts(buffer=False), lambda: counts(buffer=True), "register_buffer",
    ),
    "a number": (lambda: scales((2, 3, 4)), lambda: scales((2, 3), dynamic=True), "dynamic=True"),
    "a float": (
        lambda: scales((1.5, 2.5)),
        lambda: scales((torch.tensor(1.5), torch.tensor(2.5))), "as a tensor",
    ),
    "a global": (
        scales_by_a_global, lambda: scales((2, 3, 4), dynamic=True), "as an argument",
    ),
    "a string": (
        lambda: adds_by_mode(apart=False), lambda: adds_by_mode(apart=True), "one graph per value",
    ),
    "a flag": (adds_by_flag, lambda: adds_by_mode(apart=True), "one graph per value"),
    "a length": (lambda: sums(stacked=False), lambda: sums(stacked=True), "torch.stack"),
    "a size": (
        lambda: calls(lambda: sized(marked=False)), lambda: calls(lambda: sized(marked=True)),
        "mark_dynamic",
    ),
    "a square": (
        lambda: calls(lambda: sized(marked=False), dynamic=True),
        lambda: calls(lambda: sized(marked=True)), "mark_dynamic",
    ),
    "a size of one": (
        lambda: calls(lambda: [torch.ones(1, 4), torch.ones(5, 4)]),
        lambda: calls(lambda: [torch.ones(5, 4), torch.ones(5, 4)]), "pad the dimension",
    ),
    "strides": (
        lambda: calls(lambda: [X, X.t()]), lambda: calls(lambda: [X, X.t().contiguous()]),
        "contiguous",
    ),
    "a rank": (
        lambda: calls(lambda: [X, X[0]]),
        lambda: calls(lambda: [X, X.reshape(2, 2, 4).flatten(0, 1)]),
        "number of dimensions",
    ),
    "requires_grad": (
        lambda: calls(lambda: [X, X.clone().requires_grad_()]),
        lambda: calls(lambda: [X, X.clone().requires_grad_().detach()]), "detach",
    ),
    "a dtype": (
        lambda: calls(lambda: [X, X.double()]), lambda: calls(lambda: [X, X.double().float()]),
        "one dtype",
    ),
    "the grad mode": (lambda: graded(same=False), lambda: graded(same=True), "same grad mode"),
    "a function": (lambda: applies(same=False), lambda: applies(same=True), "same object"),
    "keys": (lambda: adds_values("a", "b"), lambda: adds_values("a", "a"), "the same keys"),
}  # fmt: skip


def recompiles(program: Program, base: Path) -> list[RecompileCost]:
    """The recompiles of a program, as explain finds them."""
    torch._dynamo.reset()
    folder = run_folder.create("explain", base)
    with traced(EventLog(folder)):
        program()
    run = find(str(folder))
    return explain(run, run.events()).recompiles


@pytest.mark.parametrize("name", CASES)
def test_following_the_advice_removes_the_recompile(name: str, tmp_path: Path) -> None:
    before, after, said = CASES[name]
    found = recompiles(before, tmp_path)
    assert found, "the program has to recompile"
    assert any(said in remedy for remedy in found[0].advice), found[0].recompile.reasons
    assert recompiles(after, tmp_path) == []


def test_every_advice_is_followed_in_a_test() -> None:
    said = {said for _, _, said in CASES.values()}
    assert [text for _, text in ADVICE if not any(s in text for s in said)] == []


def test_no_advice_is_better_than_one_that_does_not_fit() -> None:
    assert advice(["0/0: something that torch never said"]) == []
    assert advice([]) == []


SIZE = "L['x']: 8 -> 2 (size change)"
MARK = "mark_dynamic(tensor, dim) before the first call"


@pytest.mark.parametrize(
    ("guard", "change", "remedies", "differed"),
    [
        ("tensor 'x' size mismatch at index 0. expected 8, actual 2", SIZE, [MARK], SIZE),
        (
            "GLOBAL_STATE changed: grad_mode", SIZE,
            ["make all calls under the same grad mode, autocast and threads", MARK],
            f"GLOBAL_STATE changed: grad_mode; {SIZE}",
        ),
        (
            "tensor 'x' dtype mismatch. expected Float, actual Double", SIZE,
            ["convert to one dtype before the call", MARK],
            f"tensor 'x' dtype mismatch. expected Float, actual Double; {SIZE}",
        ),
        (
            "tensor 'x' size mismatch at index 0. expected 1, actual 5",
            "L['x']: 1 -> 5 (size change)",
            ["pad the dimension to 2 or more: a size of 0 or 1 always has a graph of its own"],
            "L['x']: 1 -> 5 (size change)",
        ),
        (
            "L['flag'] == 'a'", "L['n']: 2 -> 3 (scalar change)",
            [
                "choose between two compiled functions outside: a string or flag has one graph per "
                "value",
                "torch.compile(..., dynamic=True), or pass the number as a tensor",
            ],
            "L['flag'] == 'a'; L['n']: 2 -> 3 (scalar change)",
        ),
        (
            "L['n'] == 2", "L['n']: 2 -> 3 (scalar change)",
            ["torch.compile(..., dynamic=True), or pass the number as a tensor"],
            "L['n']: 2 -> 3 (scalar change)",
        ),
    ],
)  # fmt: skip
def test_each_cause_of_a_recompile_is_named_and_has_its_remedy(
    guard: str, change: str, remedies: list[str], differed: str
) -> None:
    assert advice([f"0/1: {guard}", "0/0: L['n'] == 1"], [change]) == remedies
    assert cause([f"0/1: {guard}"], [change]) == differed


def test_following_both_remedies_removes_the_recompile(tmp_path: Path) -> None:
    def before() -> None:
        f = compiled(lambda x: x * 2)
        f(torch.ones(8, 3))
        with torch.no_grad():
            f(torch.ones(5, 3))

    def after() -> None:
        f = compiled(lambda x: x * 2)
        for size in (8, 5):
            x = torch.ones(size, 3)
            torch._dynamo.mark_dynamic(x, 0)
            f(x)

    (found,) = recompiles(before, tmp_path)
    assert ["same grad mode" in found.advice[0], *found.advice[1:]] == [True, MARK]
    assert found.cause == "GLOBAL_STATE changed: grad_mode; L['x']: 8 -> 5 (size change)"
    assert recompiles(after, tmp_path) == []


def test_a_text_is_cut_between_words() -> None:
    assert clipped("a remedy that helps", 15) == "a remedy that…"
    assert clipped("short", 5) == "short"
    assert clipped("x" * 20, 5) == "xxxx…"
