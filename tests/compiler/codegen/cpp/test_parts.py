"""Kernels whose outer loops are divided among threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from cpp_kernels import kernels
from judge import assert_as_eager, compiled

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "one loop": (lambda x: x.softmax(-1), (301, 130)),
    "two loops": (lambda x: x.transpose(1, 2).softmax(1), (3, 7, 2000)),
    "three loops": (lambda x: x.permute(2, 0, 1, 3).flip(0).sum(3), (2, 3, 97, 130)),
    "few iterations": (lambda x: x.cumsum(1), (2, 40000)),
    "blocks of lanes": (lambda x: x.sum(0), (50, 1003)),
    "blocks of lanes in a loop": (lambda x: x.amax(1), (5, 100, 131)),
    "tiles": (lambda x: x.transpose(1, 2).contiguous() + 1, (5, 190, 131)),
    "a scatter": (lambda x: x.scatter_add(1, (x * 9).long() % 90, x), (5, 90, 131)),
    "pieces of a scatter": (lambda x: x.index_add(0, x[:, 0].long() % 3, x), (40, 1001)),
}


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dynamic", "threads"), [(False, 1), (False, 3), (True, 2)], indirect=["threads"]
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_iteration_belongs_to_one_part(name: str, dynamic: bool, threads: int) -> None:
    function, size = PROGRAMS[name]
    whole = torch.randint(0, 90, size, generator=torch.Generator().manual_seed(0)).float()
    torch._dynamo.reset()
    assert_as_eager(compiled(function, dynamic=dynamic), function, [whole])


def test_a_dynamic_size_of_zero_divides_nothing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).softmax(1)

    torch._dynamo.reset()
    run = compiled(function, dynamic=True)
    assert_as_eager(run, function, [torch.randn(5, 7, 2000)])
    assert_as_eager(run, function, [torch.randn(5, 0, 2000)])
    assert_as_eager(run, function, [torch.randn(0, 7, 2000)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_parallel_region_only_calls_a_part(name: str) -> None:
    """g++ forgets within a parallel region that the pointers of a kernel do not overlap."""
    function, size = PROGRAMS[name]
    text = kernels(function, torch.ones(size))
    regions = text.split("#pragma omp parallel num_threads")[1:]
    assert regions
    for region in regions:
        called, reported, _ = region[region.index("{") + 1 : region.index("}")].split(";")
        assert re.match(r"\s*const int status = \w+_part\(", called)
        assert reported.strip() == "if (status != TCD_OK) tcd_report(&found, status)"
