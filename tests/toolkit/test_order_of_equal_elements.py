"""tcdebug bisect on sorts whose equal elements have another order than in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tcdebug.minifier.processes.job import ORDER

Command = Callable[..., Any]
Script = Callable[[str], str]

LAST_FIRST = """
from torch._inductor import lowering

@torch.library.custom_op("planted::sort", mutates_args=())
def sort(x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values, at = x.flip(dim).sort(dim=dim, descending=descending, stable=True)
    return values, {positions}

@sort.register_fake
def _(x, dim, descending):
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)

handler = lowering.fallback_handler(torch.ops.planted.sort.default)

@lowering.register_lowering(torch.ops.aten.sort.default, type_promotion_kind=None)
def last_first(x, dim=-1, descending=False):
    return handler(x, dim, descending)

@torch.compile
def f(x):
    return {returned}

f(torch.arange(12.0).remainder(3))
"""
UNSTABLE = "x.shape[dim] - 1 - at"


@pytest.mark.slow
def test_an_order_that_torch_does_not_promise_is_no_failure(
    tcdebug: Command, script: Script
) -> None:
    text = LAST_FIRST.format(positions=UNSTABLE, returned="torch.sort(x + 1)")
    done = tcdebug("bisect", "--json", script(text))
    assert (done.status, done.json["status"]) == (4, "no_failure")
    assert f"graph 0 counts as passed: {ORDER}" in done.json["notes"]


@pytest.mark.slow
def test_a_culprit_whose_order_torch_does_not_promise_has_a_note(
    tcdebug: Command, script: Script
) -> None:
    text = LAST_FIRST.format(
        positions=UNSTABLE, returned="(x + torch.arange(12))[torch.argsort(x)]"
    )
    report = tcdebug("bisect", "--json", script(text)).json
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sort.default"]
    assert ORDER in report["notes"]


@pytest.mark.slow
def test_positions_that_occur_twice_are_a_failure(tcdebug: Command, script: Script) -> None:
    text = LAST_FIRST.format(positions="at * 0", returned="torch.sort(x * 0)")
    report = tcdebug("bisect", "--json", script(text)).json
    assert report["status"] == "confirmed"
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sort.default"]
    assert ORDER not in report["notes"]


@pytest.mark.slow
def test_a_script_that_needs_the_order_of_eager_has_its_culprit_named(
    tcdebug: Command, script: Script
) -> None:
    text = LAST_FIRST.format(positions=UNSTABLE, returned="torch.sort(x + 1)[1]")
    text += "assert f(torch.zeros(3)).tolist() == [0, 1, 2]\n"
    report = tcdebug("bisect", "--json", script(text)).json
    assert report["status"] == "confirmed"
    assert [c["unit"] for c in report["culprits"]] == ["lower.aten.sort.default"]
    assert ORDER in report["notes"]
