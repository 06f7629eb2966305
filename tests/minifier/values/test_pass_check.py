"""The graph before and after a compiler's passes."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.values.observation import Observation, ObservedPlace
from tcdebug.minifier.values.pass_check import check_passes

aten = torch.ops.aten


class Counting(TorchDispatchMode):
    """Counts the calls of operators, by operator and dtype of the first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[Any, torch.dtype]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tensors = [value for value in args if isinstance(value, Tensor)]
        if tensors:
            self.calls[func, tensors[0].dtype] += 1
        return func(*args, **(kwargs or {}))


def chain(x: Tensor) -> tuple[Tensor, ...]:
    first = x.tanh()
    second = first.sinh()
    third = second.sinh()
    return first, second, third, third.cosh()


def check(folder: Path, before: fx.GraphModule, after: fx.GraphModule, x: Tensor) -> Observation:
    observation = Observation(folder, EventLog(folder), "", "default", False, 3, str, str)
    check_passes(observation, ObservedPlace(0, "forward", 0), before, after, [x])
    return observation


def test_each_node_is_computed_once_for_all_results(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 16)
    before = make_fx(chain, tracing_mode="fake")(x)
    with Counting() as equal:
        assert check(tmp_path, before, copy.deepcopy(before), x).values == 4
    assert equal.calls[aten.tanh.default, torch.float32] == 2
    assert equal.calls[aten.sinh.default, torch.float32] == 4
    assert equal.calls[aten.sinh.default, torch.float64] == 0


def test_a_pass_that_rounds_otherwise_is_judged_with_each_node_once_in_float64(
    tmp_path: Path,
) -> None:
    x = torch.linspace(-1, 1, 16)
    before = make_fx(chain, tracing_mode="fake")(x)
    after = make_fx(lambda x: chain(x * (1 + 2**-23)), tracing_mode="fake")(x)
    with Counting() as close:
        observation = check(tmp_path, before, after, x)
    assert (observation.values, observation.found) == (4, None)
    assert close.calls[aten.tanh.default, torch.float64] == 1
    assert close.calls[aten.sinh.default, torch.float64] == 2


def test_a_pass_that_changes_a_later_result_is_found(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 16)
    before = make_fx(chain, tracing_mode="fake")(x)
    after = copy.deepcopy(before)
    (node,) = after.graph.find_nodes(op="call_function", target=aten.cosh.default)
    node.target = aten.cos.default
    after.recompile()
    found = check(tmp_path, before, after, x).found
    assert found is not None
    assert (found.kind, found.reason.partition(":")[0]) == ("passes", "cosh")
