"""Bodies of control flow are compiled as graphs of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import assert_same, compiled, gradients
from programs import f32
from torch import fx
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch.utils.flop_counter import FlopCounterMode

from tcdebug.compiler.bodies import CompiledBody

WEIGHT = f32(8, 8)
Function = Callable[[torch.Tensor], Any]


def branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x.sin() @ WEIGHT).relu(), lambda x: x.cos() * 3, (x,))


def loop(x: torch.Tensor) -> Any:
    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = torch.cond(x.sum() > 0, lambda x: x - 1, lambda x: x + 2, (x,))
        return i + 1, inner * 0.9

    return torch.while_loop(lambda i, x: i < 4, step, (torch.tensor(0), x))


def recurrence(x: torch.Tensor) -> Any:
    return scan(lambda c, y: (c * 0.9 + y.sin(), (c * y).cos()), x[0].clone(), x, dim=0)


def rows(x: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda y: (y.sin() * 2 + 1).cos(), x)


FUNCTIONS: dict[str, Function] = {
    "cond": branch, "while_loop": loop, "scan": recurrence, "map": rows
}  # fmt: skip


def directions(folder: Path, function: Function, **options: Any) -> set[str]:
    """Compare a compiled function with eager. Return the directions of the graphs that it has."""
    options |= {"run_dir": str(folder), "log": True}
    assert_same(compiled(function, options=options)(f32(8, 8)), function(f32(8, 8)))
    (path,) = folder.glob("events*.jsonl")
    events = map(json.loads, path.read_text().splitlines())
    return {e["direction"] for e in events if e["event"] == "compile.end"}


@pytest.mark.parametrize(
    ("name", "graphs"), [("cond", 3), ("while_loop", 5), ("scan", 2), ("map", 2)]
)
def test_each_body_is_a_graph_of_its_own(name: str, graphs: int, tmp_path: Path) -> None:
    found = directions(tmp_path, FUNCTIONS[name])
    assert len(found) == graphs
    assert all(f == "inference" or f.startswith("inference.") for f in found)


def test_a_body_is_interpreted_with_its_unit_off(tmp_path: Path) -> None:
    assert directions(tmp_path, loop, off=["runtime.bodies"]) == {"inference"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["cond", "scan", "map"])
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_go_through_bodies(name: str, sign: int) -> None:
    def last(x: torch.Tensor) -> torch.Tensor:
        result = FUNCTIONS[name](x)
        value: torch.Tensor = result[-1] if isinstance(result, tuple) else result
        return value

    x = f32(8, 8).abs() * sign
    expected = gradients(last, [x.clone().requires_grad_()])
    assert_same(gradients(compiled(last), [x.clone().requires_grad_()]), expected)


def test_a_body_of_symbolic_sizes_is_interpreted() -> None:
    function = torch.compile(branch_of_any_size, backend="tcdebug", dynamic=True)
    for count in (3, 5, 9):
        assert_same(function(torch.ones(count)), torch.ones(count).sin() * 2)


def branch_of_any_size(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() * 3, (x,))


def test_operators_inside_are_seen_by_a_mode_that_counts_them() -> None:
    function = compiled(branch)
    function(f32(8, 8))
    with FlopCounterMode(display=False):
        assert_same(function(f32(8, 8)), branch(f32(8, 8)))


def test_arguments_of_other_strides_run_the_graph_itself() -> None:
    reports: list[None] = []
    body = CompiledBody(
        lambda arguments: ["compiled"],
        fx.symbolic_trace(lambda x: (x * 2,)),
        (((2, 3), (3, 1)),),
        False,
        lambda: reports.append(None),
    )
    assert body(torch.ones(2, 3)) == ("compiled",)
    assert not reports
    (result,) = body(torch.ones(3, 2).t())
    assert_same(result, torch.full((3, 2), 2.0).t())
    assert len(reports) == 1
