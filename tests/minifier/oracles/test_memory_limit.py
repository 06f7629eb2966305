"""The memory limit of candidates: derived from a run that ended, and raised by runs that end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.oracles import memory_limit
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.memory_limit import MemoryLimit, is_over_memory
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle

MIB = 1 << 20
LOOKED_AT = 0.5
"""Seconds in which a child is looked at several times, also on a busy machine."""
GIB = 1 << 30
KILLED = Outcome(Kind.KILLED, "compile", "compile | out of memory", "over the memory limit")


def held(mebibytes: int) -> Outcome:
    return Outcome(Kind.OK, memory=mebibytes * MIB)


def test_the_limit_is_four_times_what_a_run_held_and_at_least_a_gibibyte() -> None:
    limit = MemoryLimit(8 * GIB)
    limit.tighten(held(60))
    assert limit.memory == GIB
    limit.tighten(held(512))
    assert limit.memory == 2 * GIB
    limit.tighten(held(5000))
    assert limit.memory == 8 * GIB


def test_a_run_that_ended_gives_later_runs_four_times_its_memory_up_to_the_first_limit() -> None:
    limit = MemoryLimit(8 * GIB)
    limit.tighten(held(60))
    limit.loosen(held(100))
    assert limit.memory == GIB
    limit.loosen(held(768))
    assert limit.memory == 3 * GIB
    limit.loosen(held(4096))
    assert limit.memory == 8 * GIB


def test_memory_without_a_limit_stays_so() -> None:
    limit = MemoryLimit(None)
    limit.tighten(held(60))
    limit.loosen(held(60))
    assert limit.memory is None
    assert limit.still_counts(KILLED)


def growing(mebibytes: int) -> Callable[..., Any]:
    """Return a backend that takes memory for a graph with tanh, and little for any other."""

    def grows(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        blocks: list[torch.Tensor] = []
        while backends.holds_tanh(module) and len(blocks) < mebibytes // 64:
            blocks.append(torch.ones(16 * MIB))  # too large for what the process has freed
        time.sleep(LOOKED_AT if blocks else 0)
        return module.forward

    return grows


def asked(folder: Path, mebibytes: int) -> Oracle[Case]:
    limits = Limits(30.0, 600 * MIB)
    target = backends.target(growing(mebibytes))
    subject = GraphSubject(target, EventLog(folder), memory=limits.memory)
    return graph_oracle(subject, limits, Budget())


def tanh_case() -> Case:
    return captured(lambda x: x.tanh(), torch.ones(3))


def test_a_candidate_that_grows_is_ended_early_and_asked_again_with_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limit, "LEAST", 100 * MIB)
    oracle = asked(tmp_path, 320)
    oracle.tighten_memory(held(10))
    assert oracle.limits.memory == 100 * MIB
    killed = oracle.ask(tanh_case(), Toggles(), "grows")
    assert is_over_memory(killed)
    assert 100 * MIB < killed.memory < 400 * MIB
    assert oracle.ask(tanh_case(), Toggles(), "known").kind is Kind.KILLED
    assert oracle.reruns == 1
    oracle.tighten_memory(held(150))
    assert oracle.limits.memory == 600 * MIB
    ended = oracle.ask(tanh_case(), Toggles(), "with more memory")
    assert (ended.kind, oracle.reruns) == (Kind.OK, 2)
    assert 100 * MIB < ended.memory < 600 * MIB  # the last look at it may precede the last block
