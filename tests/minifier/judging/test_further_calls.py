"""Calls of a graph after the first. What they find on a GPU is tested in tests/device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from captured import captured
from subclasses import PLACEMENTS, Doubling, Quantised, fake_ranks, jagged, placed, two
from torch.distributed.tensor import Partial

from tcdebug.minifier.judging.further_calls import NumberedCall, calls_of, can_be_repeated
from tcdebug.minifier.judging.replay import Results


def results(value: float) -> Results:
    return Results([torch.full((2, 3), value).t(), 3], [None], [torch.zeros(2)])


def test_without_a_gpu_there_is_one_call() -> None:
    calls: list[Results] = []

    def call() -> Results:
        calls.append(results(1.0))
        return calls[-1]

    assert calls_of(call, Results.copied, Results.tensors) == [NumberedCall(1, calls[0])]
    assert len(calls) == 1


def of_all_classes() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of tensors with different values, of several classes."""
    yield torch.ones(3), torch.ones(3) * 2
    yield two(2, 3), two(2, 3) * 2
    yield jagged(3, 5), jagged(3, 5) * 2
    yield torch.ones(3).as_subclass(Doubling), (torch.ones(3) * 2).as_subclass(Doubling)
    data = torch.ones(2, 3, dtype=torch.int8)
    yield Quantised(data, torch.ones(1), "a"), Quantised(data, torch.ones(1) * 2, "a")
    with fake_ranks(4) as mesh:
        for placement in (*PLACEMENTS, Partial()):
            x = placed(mesh, placement)
            yield x, x * 2


def test_further_calls_count_if_their_values_differ_whatever_the_class_of_a_tensor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for first, other in of_all_classes():
        for changes in (False, True):
            made = iter([first, first.clone(), other if changes else first.clone()])
            calls = calls_of(
                partial(lambda made, rest: Results([next(made, rest)], [None], []), made, first),
                Results.copied,
                Results.tensors,
            )
            assert [c.number for c in calls] == ([1, 3] if changes else [1])


def test_copies_keep_their_values_and_strides() -> None:
    first = results(1.0)
    copy = first.copied()
    first.outputs[0].fill_(2.0)
    torch.testing.assert_close(copy.outputs[0], torch.ones(3, 2))
    assert copy.outputs[0].stride() == (1, 3)
    assert (copy.outputs[1], copy.gradients) == (3, [None])
    assert len(copy.tensors()) == 2


def test_a_graph_that_holds_a_tensor_is_called_once() -> None:
    counter = torch.zeros(1)
    assert can_be_repeated(captured(torch.sin, torch.ones(2)))
    held = captured(lambda x: x + counter, torch.ones(2))
    assert can_be_repeated(held) is not any(n.op == "get_attr" for n in held.graph.nodes)
