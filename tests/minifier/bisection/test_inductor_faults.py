"""A planted bug in stock inductor is bisected to its unit, in children of this process.

tests/quality/test_planted_inductor.py does the same with the whole command.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.targets.backends import INDUCTOR, Backend

sys.path.insert(0, str(Path(__file__).parents[2]))
import planted_inductor

UNIT = "decompose.aten.softplus.default"


def test_a_segfault_in_a_decomposition_is_bisected_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TCDEBUG_LOG")  # decisions are events
    target = Backend(INDUCTOR, INDUCTOR, run_dir=str(tmp_path))
    target.warm_up(EventLog(None))
    plant = planted_inductor.PLANTS[UNIT]
    subject = GraphSubject(target, EventLog(tmp_path), prepare=lambda: plant("segfault"))
    case = captured(lambda x: torch.nn.functional.softplus(x), torch.randn(16, 16))
    asked = CandidateOracle(graph_oracle(subject, Limits(), Budget()), case)
    failure = asked.ask(Toggles(), "the graph")
    assert failure.kind is Kind.CRASH
    verdict = bisect(asked.ask, failure, Toggles(), EventLog(None))
    assert [fault.unit for fault in verdict.faults] == [UNIT]
    assert verdict.confirmed
