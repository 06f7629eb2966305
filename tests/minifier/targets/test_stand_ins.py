"""A backend that replaces the program's does not change how compiled modules are copied."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backends
import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.capture import Capture
from tcdebug.minifier.capture.recorder import Recorder
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.profiling.recording import StepCount
from tcdebug.minifier.reuse.graphs import Graphs
from tcdebug.minifier.targets.interception import compile_patched
from tcdebug.minifier.values.graph_check import GraphChecks
from tcdebug.minifier.values.observation import Observation

Wrap = Callable[[Any], Any]


class Judge:
    """Counts the graphs that are judged. Like the judge of a session, it cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.graphs = 0

    def __call__(self, *case: Any) -> None:
        self.graphs += 1


def _watching(folder: Path) -> Wrap:
    watcher = Watcher(folder, EventLog(None))
    return lambda backend: Graphs().wrap(backend, watcher.wrap)


def _unobserved(folder: Path) -> Observation:
    def end() -> None:
        raise AssertionError("the test finds nothing")

    return Observation(folder, EventLog(None), "", "default", False, 1, end, end)


WRAPS: dict[str, Callable[[Path], Wrap]] = {
    "recording": lambda folder: Recorder(Judge(), str(folder)).wrap,
    "capture": lambda folder: Capture(folder, EventLog(None)).wrap,
    "watching": lambda folder: Watcher(folder, EventLog(None)).wrap,
    "keeping": _watching,
    "profile": lambda folder: StepCount(2, threading.Event().set).wrap,
    "values": lambda folder: GraphChecks(_unobserved(folder)).wrap,
}


@pytest.mark.parametrize("kind", WRAPS)
def test_a_compiled_module_can_be_copied_and_pickled(kind: str, tmp_path: Path) -> None:
    with compile_patched(WRAPS[kind](tmp_path), EventLog(None)):
        compiled = torch.compile(torch.nn.Linear(2, 2), backend=backends.right)
        copied = copy.deepcopy(compiled)
        loaded = pickle.loads(pickle.dumps(compiled))
    with torch.no_grad():
        copied.weight.zero_()
        copied.bias.fill_(3)
    x = torch.ones(2)
    assert copied(x).tolist() == [3, 3]
    assert torch.equal(loaded(x), compiled(x))


def test_the_graphs_of_a_copied_module_are_judged() -> None:
    judge = Judge()
    with compile_patched(Recorder(judge, "").wrap, EventLog(None)):
        module = torch.compile(torch.nn.Tanh(), backend=backends.wrong)
        copy.deepcopy(module)(torch.ones(2))
    assert judge.graphs == 1
