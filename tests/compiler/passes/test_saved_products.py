"""Padded products of a training step, computed on a CPU that poses as a GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graphs import ops
from judge import assert_same, compiled, gradients
from torch import fx

from tcdebug.compiler import pipeline, seams
from tcdebug.compiler.lower.stage import lower_graph

HALF = torch.bfloat16
ROWS, COLUMNS = 130, 13
"""With the smallest possible pieces there are two of them. 16 columns are in memory."""
LABELS = torch.arange(ROWS).reshape(2, -1) % COLUMNS

Step = Callable[..., Any]


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """The ATen graphs that are lowered. Products are padded like large ones on a GPU."""
    lowered: list[fx.GraphModule] = []
    passes = import_module("tcdebug.compiler.passes.aligned_products")
    monkeypatch.setattr(passes, "on_gpu", lambda node: True)
    monkeypatch.setattr(passes, "FEWEST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(passes, "FEWEST_USES", 1)
    monkeypatch.setattr(import_module("tcdebug.compiler.operators.product_in_pieces"), "PIECE", 1)

    def spy(module: fx.GraphModule, gate: Any) -> Any:
        lowered.append(module)
        return lower_graph(module, gate)

    monkeypatch.setattr(pipeline, "lower_graph", spy)
    return lowered


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    report = seams.report_strides

    def spy(strides: Any) -> None:
        found.extend(s for s in strides if s is not None)
        report(strides)

    monkeypatch.setattr(seams, "report_strides", spy)
    return found


def loss(logits: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.view(-1, COLUMNS).float(), LABELS.view(-1))


def head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return loss(x @ weight.t())


def head_with_bias(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return loss(F.linear(x, weight, bias))


def and_logits(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    logits = x @ weight.t()
    return loss(logits), logits


def and_some_logits(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    logits = x @ weight.t()
    return loss(logits), logits.transpose(0, 1)[1:3]


def assert_as_eager(step: Step) -> None:
    sizes = ((2, ROWS // 2, 16), (COLUMNS, 16), (COLUMNS,))[: step.__code__.co_argcount]
    given = [torch.randn(size).to(HALF) for size in sizes]
    mine, theirs = ([g.clone().requires_grad_() for g in given] for _ in range(2))
    assert_same(gradients(compiled(step), mine), gradients(step, theirs))


@pytest.mark.parametrize("step", [head, head_with_bias])
def test_logits_that_are_only_saved_keep_their_padding(
    step: Step, forwards: list[fx.GraphModule], reported: list[tuple[int, ...]]
) -> None:
    assert_as_eager(step)
    forward = ops(forwards[0])
    assert forward["slice.Tensor"] == 1
    assert not {"clone.default", "tcdebug.product_in_pieces.default"} & forward.keys()
    assert reported == [(16, 1)]


@pytest.mark.parametrize("step", [and_logits, and_some_logits])
def test_logits_that_are_also_returned_have_the_layout_of_eager(
    step: Step, forwards: list[fx.GraphModule], reported: list[tuple[int, ...]]
) -> None:
    assert_as_eager(step)
    assert ops(forwards[0])["tcdebug.product_in_pieces.default"] == 1
    assert reported == []
