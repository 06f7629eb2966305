"""Ranges of the profiler around graphs and kernels, only with the option `profile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tcdebug.compiler.runtime.profiler_ranges import kernel_ranges
from tcdebug.reading.run_dir import read


def program(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Several kernels, which one launch runs, and a library call."""
    total = x.exp().sum(0)
    return (total.cumsum(0) * 2)[index].sin() @ x.t()


def profiled(folder: Path, options: Mapping[str, Any]) -> tuple[list[str], torch.Tensor]:
    """The names of all ranges of a second call, and its result."""
    torch._dynamo.reset()
    given = {"log": True, "run_dir": folder, **options}
    compiled = torch.compile(program, backend="tcdebug", options=given)
    x, index = torch.linspace(0, 1, 32).reshape(4, 8), torch.arange(8)
    compiled(x, index)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        result = compiled(x, index)
    torch.testing.assert_close(result, program(x, index))
    return [event.name for event in found.events()], result


def test_each_kernel_of_a_launch_has_a_range_inside_that_of_its_graph(tmp_path: Path) -> None:
    names, _ = profiled(tmp_path, {"profile": True})
    records = list(read(next(tmp_path.glob("events*.jsonl"))))
    steps = [r["data"] for r in records if r["event"] == "graph.step"]
    kernels = [step["name"] for step in steps if step["generated"]]
    assert len(kernels) >= 2
    assert [name for name in names if name in kernels] == kernels
    (graph,) = [name for name in names if name.startswith("tcdebug graph ")]
    assert graph.split()[3] == "inference"
    assert names.index(graph) < names.index(kernels[0])
    assert all(place.startswith(f"{__file__}:") for step in steps for place in step["lines"])
    assert [len(step["nodes"]) for step in steps] == [len(step["node_lines"]) for step in steps]


def test_without_the_option_there_are_no_ranges_and_the_result_is_the_same(tmp_path: Path) -> None:
    plain, expected = profiled(tmp_path, {})
    _, actual = profiled(tmp_path, {"profile": True})
    assert not [name for name in plain if name.startswith(("tcdebug", "cpp_"))]
    assert torch.equal(actual, expected)


INDICES = torch.tensor([0, 99])


@pytest.mark.parametrize("option", [False, True])
def test_the_kernel_that_fails_in_a_launch_is_named_with_and_without_ranges(
    tmp_path: Path, option: bool
) -> None:
    torch._dynamo.reset()

    def reads_outside(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0)[index].sin()

    options = {"run_dir": tmp_path, "profile": option}
    compiled = torch.compile(reads_outside, backend="tcdebug", options=options)
    with pytest.raises(IndexError, match=r"index out of range \(found by cpp_.*(index|sin)"):
        compiled(torch.ones(4), INDICES)


def test_functions_that_run_no_kernel_are_left_alone() -> None:
    def mend() -> int:
        return 0

    assert kernel_ranges({"mend_k": mend}, []) == {}
