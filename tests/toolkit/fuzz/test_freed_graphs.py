"""A program that differentiates a graph that is freed is no failure; a backend that frees it is."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.verdict import Status
from tcdebug.minifier.reuse.freed_graphs import watching_backward
from tcdebug.strategies.python.python_program import PythonProgram
from tests.planted_in_dynamo import program

RECORDED = ("x = torch.ones(2, 3, requires_grad=True)", "y = x", "n = 1")


def status(made: PythonProgram, folder: Path) -> Status:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_python(made, "aot_eager", lambda phase: None, folder).status


@pytest.mark.parametrize(
    ("body", "between"),
    [
        ("return [x.sum(-1), x + 2]", "result[-1].sum().backward()"),
        ("return [x + x, x + 2]", "x = result[0]"),
        ("v = x + 2\ntorch._dynamo.graph_break()\nv.sum().backward()\nreturn [v]", "y = x"),
        (
            "v = x + 1\ntorch._dynamo.graph_break()\n"
            "(g,) = torch.autograd.grad(v.sum(), x)\nreturn [v, g]",
            "y = x",
        ),
    ],
)
def test_a_graph_that_the_program_differentiates_twice_is_no_failure(
    body: str, between: str, tmp_path: Path
) -> None:
    """Eager's nodes saved nothing, so they can run again; a compiled graph is one node."""
    made = program(body, between, first=RECORDED, backward=True)
    assert status(made, tmp_path) is Status.DISCARDED


def test_a_backend_that_frees_a_graph_which_is_differentiated_once_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = program("return [x.sum(-1), x * 2]", first=RECORDED, backward=True)
    assert status(once, tmp_path) is Status.PASSED
    lookup = torch._dynamo.lookup_backend

    def freeing(name: str) -> Any:
        def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            compiled = lookup(name)(graph, inputs)

            def run(*args: torch.Tensor) -> Any:
                results = compiled(*args)
                torch.stack([result.sum() for result in results]).sum().backward()
                return results

            return run

        return backend

    monkeypatch.setattr(torch._dynamo, "lookup_backend", freeing)
    assert status(once, tmp_path) is Status.FAILED


@pytest.mark.parametrize(
    ("keep", "again"), [(False, True), (True, False)], ids=["freed", "retained"]
)
def test_a_graph_is_differentiated_again_unless_it_was_retained(keep: bool, again: bool) -> None:
    x = torch.ones(3, requires_grad=True)
    with watching_backward() as freed:
        total = x.sum()
        total.backward(retain_graph=keep)
        (x * 3).sum().backward()
        assert not freed.again
        torch.autograd.grad(total, x)
    assert freed.again is again
