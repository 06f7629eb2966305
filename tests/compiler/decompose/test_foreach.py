"""Operators on lists of tensors become operators on each tensor, which fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from externs import compiled_with_reasons
from judge import assert_as_eager

from tcdebug.compiler.decompose.foreach import FOREACH


def tensors(count: int) -> list[list[torch.Tensor]]:
    """Lists of three tensors: a matrix, a number, and a tensor with gaps."""
    torch.manual_seed(0)
    sizes = ((4, 4), (), (4, 4))
    found = [[torch.rand(size) + 0.1 for size in sizes] for _ in range(count)]
    return [[a, b, c[:, ::2]] for a, b, c in found]


def called(op: torch._ops.OpOverload) -> tuple[Callable[..., Any], list[Any]]:
    """A function that calls the operator, and its inputs."""
    required = [a for a in op._schema.arguments if not a.has_default_value()]
    lists = tensors(sum(str(a.type) == "List[Tensor]" for a in required))
    given: list[Any] = []
    for one in required:
        match str(one.type):
            case "List[Tensor]":
                given.append(lists.pop())
            case "List[number]":
                given.append([2, 0.5, 3])
            case "Tensor":
                given.append(torch.tensor(1.5))
            case _:
                given.append(2)
    if op.name().startswith("aten::_foreach_mm"):  # torch 2.11 does not have it
        given = [[x[0], x[0] * 2] for x in given]
    return op, given


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(4))
def test_operators_on_lists_compute_what_eager_does_and_none_is_a_call_of_aten(part: int) -> None:
    operators = list(FOREACH)[part::4]
    calls = [called(op) for op in operators]

    def function(given: list[list[Any]]) -> list[Any]:
        return [op(*one) for (op, _), one in zip(calls, given, strict=True)]

    torch._dynamo.reset()
    compiled, reasons = compiled_with_reasons(function)
    assert_as_eager(compiled, function, [[given for _, given in calls]])
    assert [op for op in reasons if "_foreach" in op] == []
