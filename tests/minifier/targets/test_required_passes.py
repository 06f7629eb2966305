"""No pass that is a unit is required: without it a program compiles and is right.

The programs contain what passes must rewrite before it can be lowered: operators that write their
arguments, higher-order operators, random numbers, assertions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor
from tcdebug.minifier.targets.inductor.pass_names import NAMELESS, REQUIRED

PASSES = ("pregrad", "decompose", "joint", "postgrad", "freezing", "pass")
NO_KERNELS = ("lower", "fuse", "codegen")
"""Off in every compile, so that none waits for g++."""
Programs = tuple[Callable[..., Any], ...]


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    library = torch.library.Library("required_passes", "DEF")
    library.define("reverse_into(Tensor source, Tensor(a!) target) -> ()")
    library.define("grow(Tensor(a!)[] tensors, Tensor(b!)? other) -> ()")
    library.impl("reverse_into", _reverse_into, "CPU")
    library.impl("grow", _grow, "CPU")
    for name in ("reverse_into", "grow"):
        torch.library.register_fake(f"required_passes::{name}", lambda *args: None, lib=library)
    yield
    library._destroy()


def _reverse_into(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source.flip(0))


def _grow(tensors: list[torch.Tensor], other: torch.Tensor | None) -> None:
    for tensor in [*tensors, *([] if other is None else [other])]:
        tensor.add_(1)


def writes_an_argument(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    torch.ops.required_passes.reverse_into(y, x)
    return x * 2


def writes_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = (x * 2).reshape(2, 4)
    torch.ops.required_passes.grow([y[0]], y[1])
    torch.ops.required_passes.grow([x], None)
    return y.t() + 1, y.clone()


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))


def loops(x: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, x.sin()), (start, x))


def draws(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(8) + torch.nn.functional.dropout(x, 0.5) + torch.bernoulli(x.sigmoid())


def has_sizes_of_its_data(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    torch._check(count < 9)
    return torch.zeros(count).sum() + x.nonzero().sum()


def normalizes(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x.reshape(2, 4), None, None, training=True)


def asserts(x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("sums"):
        y = x.cumsum(0)
    torch._assert_async(y.isfinite().all())
    return y.index_put((torch.arange(4),), y[:4] * 2, accumulate=True)


def run(function: Callable[..., Any], programs: Programs) -> list[torch.Tensor]:
    """Return the results of programs in one graph, and their arguments afterwards."""

    def together(*arguments: torch.Tensor) -> list[Any]:
        return [program(x) for program, x in zip(programs, arguments, strict=True)]

    arguments = [torch.arange(8.0) / 8 - 0.25 for _ in programs]
    torch.manual_seed(0)
    results = torch.utils._pytree.tree_leaves(function(together)(*arguments))
    return [*results, *arguments]


def compiled_without(programs: Programs, *off: str) -> tuple[list[torch.Tensor], list[str]]:
    """Return the results, and the units of passes that were asked about."""
    torch._dynamo.reset()
    toggles = Toggles.parse([*NO_KERNELS, *off])
    with (
        torch._inductor.config.patch(fallback_random=True),
        inductor.switched(toggles, EventLog(None)) as gate,
    ):
        results = run(torch.compile, programs)
    return results, [d.unit for d in gate.decisions if d.unit.partition(".")[0] in PASSES]


TOGETHER = (
    pytest.param(
        (writes_an_argument, writes_views, normalizes, asserts), marks=pytest.mark.slow
    ),
    (branches,),
    pytest.param((loops,), marks=pytest.mark.slow),
    pytest.param((has_sizes_of_its_data,), marks=pytest.mark.slow),
    pytest.param(
        (draws,), marks=needs_torch("2.12", "inductor changes the order of random numbers")
    ),
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "programs", TOGETHER, ids=["writes", "branches", "loops", "sizes", "draws"]
)
def test_programs_compile_without_any_one_pass_and_without_all_passes(programs: Programs) -> None:
    expected = run(lambda function: function, programs)
    _, asked = compiled_without(programs)
    names = {unit.partition(".")[2] for unit in asked}
    assert names.isdisjoint(REQUIRED | NAMELESS)
    for off in ("all", *dict.fromkeys(asked)):
        results, _ = compiled_without(programs, off)
        for result, eager in zip(results, expected, strict=True):
            torch.testing.assert_close(result, eager, msg=f"without {off}")
