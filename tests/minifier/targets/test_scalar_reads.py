"""A candidate may read numbers from tensors exactly where the script's capture may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from captured import captured
from torch import fx
from torch._guards import TracingContext

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.recorder import Recorder
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.targets.backends import Backend


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def backends_of(fullgraph: bool) -> list[Backend]:
    """Return the backends of the graphs of a function that a script compiles."""
    seen: list[Backend] = []

    def judge(case: Case, backend: Backend, ordinal: int, call: int) -> None:
        seen.append(backend)

    torch._dynamo.reset()
    recorder = Recorder(judge, "")
    torch.compile(double, backend=recorder.wrap("aot_eager"), fullgraph=fullgraph)(torch.ones(2))
    return seen


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_graph_is_recorded_with_what_its_capture_may_read(fullgraph: bool) -> None:
    (backend,) = backends_of(fullgraph)
    assert backend.fullgraph is fullgraph
    assert backend.call() == {
        "backend": "aot_eager", **({"fullgraph": True} if fullgraph else {}),
    }  # fmt: skip


@pytest.mark.parametrize("fullgraph", [False, True])
def test_it_is_not_known_where_every_capture_may_read_numbers(fullgraph: bool) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        (backend,) = backends_of(fullgraph)
    assert backend.fullgraph is None


@pytest.mark.parametrize(("fullgraph", "allowed"), [(False, False), (True, True), (None, True)])
def test_a_candidate_reads_numbers_only_where_the_script_may(
    fullgraph: bool | None, allowed: bool
) -> None:
    found: list[bool] = []

    def noting(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        fake = TracingContext.get().fake_mode
        assert fake is not None
        assert fake.shape_env is not None
        found.append(fake.shape_env.allow_scalar_outputs)
        return graph.forward

    case = captured(double, torch.ones(2))
    torch._dynamo.reset()
    backend = Backend(noting, "noting", fullgraph=fullgraph)
    with backend.compiled(case.module, Toggles(), lambda phase: None) as compiled:
        compiled(*case.values())
    assert found == [allowed]
