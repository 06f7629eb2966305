"""Compiles that take too long, and a repro that shows it."""

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
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.timing.compile_time import longest_phases
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.repro_judging import SpeedLimits
from tcdebug.minifier.repros.verify import verify
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle

CASE = captured(lambda x: (x + 1).tanh(), torch.ones(3))
TRAINING = captured(lambda x: (x + 1).tanh(), torch.ones(3, requires_grad=True))
LONGER_THAN = 0.25


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import what a first compile imports, so that it is not part of a candidate's compile."""
    torch.compile(lambda x: (x + 1).tanh(), backend=backends.right)(torch.ones(3))
    torch._dynamo.reset()


def compute(seconds: float) -> None:
    """Use this much CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def judged(backend: Any, folder: Path, case: Case = CASE) -> Outcome:
    wanted = Criteria("compile-time", longer_than=LONGER_THAN)
    subject = GraphSubject(backends.target(backend), EventLog(folder), wanted)
    return graph_oracle(subject, Limits(60.0), Budget()).ask(case, Toggles(), "how long it takes")


def compiles_slowly(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    compute(1.5 * LONGER_THAN)
    return module.forward


def never_compiles(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    compute(1000.0)
    return module.forward


def waits(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    time.sleep(2 * LONGER_THAN)
    return module.forward


def runs_slowly(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        compute(2 * LONGER_THAN)
        return module(*values)

    return call


def plain(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return make_boxed_func(module.forward)


def runs_for_long(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        compute(4 * LONGER_THAN)
        return module(*values)

    return make_boxed_func(call)


def test_a_slow_compile_is_a_failure(tmp_path: Path) -> None:
    found = judged(compiles_slowly, tmp_path)
    assert (found.kind, found.phase, found.signature) == (Kind.SLOW, "compile", "compile | slow")
    assert "CPU-seconds; the limit is 0.25" in found.message
    assert 1.5 <= found.times <= 2.0


def test_an_endless_compile_is_interrupted(tmp_path: Path) -> None:
    found = judged(never_compiles, tmp_path)
    assert (found.kind, found.signature, found.times) == (Kind.SLOW, "compile | slow", 2.0)


def test_an_endless_compile_of_a_backward_is_interrupted(tmp_path: Path) -> None:
    backend = aot_autograd(fw_compiler=plain, bw_compiler=never_compiles)
    found = judged(backend, tmp_path, TRAINING)
    assert (found.kind, found.signature, found.times) == (Kind.SLOW, "compile | slow", 2.0)


def test_a_backward_that_runs_for_long_is_not_interrupted(tmp_path: Path) -> None:
    backend = aot_autograd(fw_compiler=plain, bw_compiler=runs_for_long)
    assert judged(backend, tmp_path, TRAINING).kind is Kind.OK


@pytest.mark.parametrize("backend", [backends.right, waits, runs_slowly])
def test_waiting_and_running_do_not_count_as_compiling(backend: Any, tmp_path: Path) -> None:
    assert judged(backend, tmp_path).kind is Kind.OK


def test_torch_reports_how_long_its_phases_took() -> None:
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert all(len(part.split()) == 2 for part in longest_phases().split(", ") if part)


SLOW = """
from torch._dynamo import register_backend

@register_backend(name="planted")
def planted(module, inputs):
    import time
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        pass
    return module.forward
"""


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("seconds", "status"), [(2 * LONGER_THAN, 1), (0.0, 0)])
def test_a_repro_of_a_slow_compile_judges_its_duration(
    seconds: float, status: int, tmp_path: Path
) -> None:
    outcome = Outcome(Kind.SLOW, "compile", "compile | slow")
    setup = f"def set_up(then):\n    exec({SLOW.format(seconds=seconds)!r})\n    then()\n"
    limits = SpeedLimits(longer_than=LONGER_THAN)
    content = Repro(outcome, {"backend": "planted"}, setup=setup, limits=limits)
    write(CASE, content, tmp_path / "repro.py")
    assert "slow compile" in (tmp_path / "repro.py").read_text()
    assert verify(tmp_path / "repro.py").status == status
