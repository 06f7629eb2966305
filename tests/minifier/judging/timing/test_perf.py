"""Programs that are slower than eager, or are compiled too often."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.timing.cpu_waits import is_quiet, timed, waited
from tcdebug.minifier.judging.timing.perf import Seconds, best_of, is_clear, resized, slow
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.subjects.judges import judge_of


def judged(backend: Any, case: Case, folder: Path, slower_than: float = 1.5) -> Outcome:
    criteria = Criteria("perf", slower_than)
    subject = GraphSubject(backends.target(backend), EventLog(folder), criteria)
    return graph_oracle(subject, Limits(60.0), Budget()).ask(case, Toggles(), "how fast it is")


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = (x @ x).tanh()
    return x


def sleeps(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Takes a hundredth of a second longer than eager."""

    def call(*values: Any) -> Any:
        time.sleep(0.01)
        return module(*values)

    return call


class SleepsInBackward(torch.autograd.Function):
    """The identity with a slow backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override] # one input
        time.sleep(0.01)
        return gradient


def sleeps_in_backward(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Takes a hundredth of a second longer than eager in backward."""
    return lambda *values: tuple(SleepsInBackward.apply(o) for o in module(*values))


def specializes(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Guards on every size, as a careless compiler would."""
    for value in inputs:
        if isinstance(value, torch.SymInt):
            int(value)
    return module.forward


def test_a_backend_that_runs_eager_is_not_slow(tmp_path: Path) -> None:
    found = judged("eager", captured(layers, torch.ones(64, 64)), tmp_path)
    assert found == Outcome(Kind.OK)


def test_a_slow_program_is_slow_in_forward(tmp_path: Path) -> None:
    found = judged(sleeps, captured(layers, torch.ones(64, 64)), tmp_path)
    assert (found.kind, found.signature) == (Kind.SLOW, "forward | slow")
    assert found.phase == "forward"
    assert "times eager's" in found.message


def test_a_slow_backward_is_distinguished_from_a_slow_forward(
    tmp_path: Path, backward_after_fork: None
) -> None:
    case = captured(layers, torch.ones(64, 64, requires_grad=True))
    found = judged(sleeps_in_backward, case, tmp_path, 5.0)
    assert (found.kind, found.signature) == (Kind.SLOW, "backward | slow")


def test_a_small_graph_may_take_as_long_as_its_call_overhead() -> None:
    assert slow([Seconds(1e-6, 0.0), Seconds(9e-5, 0.0)], 1.2) == Outcome(Kind.OK)
    assert slow([Seconds(1e-2, 0.0), Seconds(1.19e-2, 0.0)], 1.2) == Outcome(Kind.OK)
    assert slow([Seconds(1e-2, 0.0), Seconds(2e-2, 0.0)], 1.2) == Outcome(
        Kind.SLOW, "forward", "forward | slow", "20 ms, 2.0 times eager's 10"
    )
    assert slow([Seconds(1e-2, 1e-2), Seconds(1e-2, 3e-2)], 1.2).signature == "backward | slow"


def test_runs_that_waited_for_a_cpu_count_only_if_all_did() -> None:
    waits = [Seconds(0.15, 0.5, quiet=False), Seconds(0.16, 0.4, quiet=False)]
    assert best_of([*waits, Seconds(0.2, 0.7), Seconds(0.3, 0.6)]) == Seconds(0.2, 0.6)
    assert best_of(waits) == Seconds(0.15, 0.4)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_a_wait_of_any_thread_for_a_cpu_is_seen() -> None:
    allowed = os.sched_getaffinity(0)
    before, end = waited(), time.monotonic() + 5
    os.sched_setaffinity(0, {min(allowed)})
    try:
        other = threading.Thread(target=sum, args=(range(30_000_000),))
        other.start()
        while waited() == before and time.monotonic() < end:
            sum(range(10_000))
    finally:
        os.sched_setaffinity(0, allowed)
    assert waited() > before
    assert not is_quiet(1.0, 0.2)
    assert is_quiet(1.0, 0.05)


def test_a_dynamic_size_that_is_compiled_again_is_a_recompile(tmp_path: Path) -> None:
    case = captured(lambda x: x.sin() * x.shape[0], torch.ones(6, 3), dynamic=True)
    found = judged(specializes, case, tmp_path)
    assert (found.kind, found.signature) == (Kind.RECOMPILE, "forward | recompile")
    assert found.message == "compiled again for another size of a dynamic dimension"


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compile_that_covers_all_sizes_is_not_a_recompile(dynamic: bool, tmp_path: Path) -> None:
    case = captured(lambda x: x.sin() * x.shape[0], torch.ones(6, 3), dynamic=dynamic)
    assert judged("eager", case, tmp_path).kind is Kind.OK


def test_dynamic_dimensions_are_doubled_and_their_values_repeated() -> None:
    def picked(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return x[k] * x.shape[1]

    case = captured(picked, torch.ones(6, 3), torch.tensor([1, 5, 4, 0]), dynamic=True)
    larger = resized(case)
    assert larger is not None
    x, k = larger.values()
    assert tuple(x.shape) == (12, 6)
    assert k.tolist() == [1, 5, 4, 0, 1, 5, 4, 0]
    assert resized(captured(picked, torch.ones(6, 3), torch.tensor([1, 5]))) is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_the_time_of_one_thread_leaves_out_its_waits_for_a_cpu() -> None:
    """Two processes that share a CPU wait for half of their time."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        cpu, wall = time.thread_time(), time.perf_counter()
        _, seconds, _ = timed(lambda: sum(range(20_000_000)), 1)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, allowed)
    assert abs(seconds - cpu) < 0.2 * cpu
    assert seconds < 0.8 * wall


def test_timing_ends_early_if_a_program_is_far_from_the_limit() -> None:
    eager, fast, slower = Seconds(1e-2, 0.0), Seconds(1.1e-2, 0.0), Seconds(9e-2, 0.0)
    assert is_clear([(eager, fast)], 3.0)
    assert is_clear([(eager, slower)], 3.0)
    assert not is_clear([(eager, Seconds(2.5e-2, 0.0))], 3.0)
    assert not is_clear([], 3.0)
    assert not is_clear([(Seconds(1e-2, 1e-2), Seconds(1e-2, 2e-2))], 1.5)


def test_candidates_may_have_to_exceed_the_limit_by_more_than_the_overhead() -> None:
    times = [Seconds(1e-5, 0.0), Seconds(2.5e-4, 0.0)]
    assert slow(times, 1.2).failed
    assert not slow(times, 1.2, overhead=3e-4).failed
    assert is_clear([times], 1.2, overhead=3e-4)
    assert not is_clear([times], 1.2, overhead=2.4e-4)


def test_answers_of_one_thread_are_kept_apart(tmp_path: Path) -> None:
    keys = {
        judge_of(
            Criteria("perf", one_thread=one),
            Candidates(backends.target("eager"), Ambient()),
            tmp_path,
        ).key
        for one in (False, True)
    }
    assert keys == {"perf 1.2 0.0001", "perf 1.2 0.0001 one thread"}
