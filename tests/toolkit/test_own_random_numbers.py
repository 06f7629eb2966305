"""tcdebug bisect on faults that need the random numbers that inductor generates itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]
Script = Callable[[str], str]

WRONG_DTYPE = """
from torch._inductor import decomposition

def twice_as_wide(x, **options):
    return torch.rand(x.shape, dtype=torch.float64)

decomposition.fast_random_decomps()[torch.ops.aten.rand_like.default] = twice_as_wide

@torch.compile
def noisy(x):
    return torch.rand_like(x.relu())

noisy(torch.ones(4))
"""

NO_LOWERING = """
from torch._inductor import inductor_prims, lowering

@lowering.register_lowering(inductor_prims.random, type_promotion_kind=None)
def random(*args, **options):
    raise ValueError("no random numbers")

@torch.compile
def noisy(x):
    return torch.nn.functional.dropout(x.sin() + 1, 0.5)

noisy(torch.ones(4))
"""

ONLY_IN_EAGER = """
from torch._inductor import lowering

@lowering.register_lowering(torch.ops.aten.rand.default, type_promotion_kind=None)
def rand(*args, **options):
    raise ValueError("not reached by this script")

@torch.compile
def noisy(x):
    return torch.rand(4) + x

noisy(torch.ones(4))
"""


@pytest.mark.slow
def test_a_decomposition_used_only_for_inductors_random_numbers_is_found(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(WRONG_DTYPE))
    report = done.json
    assert (done.status, report["failure"]["signature"]) == (0, "forward | wrong dtype")
    assert [c["unit"] for c in report["culprits"]] == ["decompose.aten.rand_like.default"]
    assert report["nodes_after"] == 1


@pytest.mark.slow
def test_the_random_numbers_of_inductor_are_named_if_they_cannot_be_generated(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(NO_LOWERING))
    assert done.status == 0
    culprits = {c["unit"] for c in done.json["culprits"]}
    assert culprits <= {"lower.prims.inductor_random.default", "config.fallback_random"}
    assert len(culprits) == 1


@pytest.mark.slow
def test_a_failure_that_needs_eagers_random_numbers_is_not_a_failure_of_the_script(
    tcdebug: Command, script: Script
) -> None:
    done = tcdebug("bisect", "--json", script(ONLY_IN_EAGER))
    assert (done.status, done.json["status"]) == (4, "no_failure")
    counts = "graph 0 fails only with eager's random numbers, and counts as passed"
    assert any(note.startswith(counts) for note in done.json["notes"])
