"""partition.narrow_places: the places of extremes that forward saves for backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from judge import assert_same, gradients
from torch import Tensor
from torch.nn import functional as F

from tcdebug.compiler.partition import narrow_places

OFF = {"off": [narrow_places.UNIT]}

PLACES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], torch.dtype]] = {
    # function, size of its argument, dtype of the saved places
    "small plane": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 16, 16), torch.uint8),
    "plane": (lambda x: F.max_pool2d(x, 2), (2, 3, 17, 17), torch.int16),
    "large plane": (lambda x: F.max_pool2d(x, 4), (1, 1, 182, 182), torch.int32),
    "last plane of 16 bits": (lambda x: F.max_pool2d(x, 4), (1, 1, 128, 256), torch.int16),
    "signal": (lambda x: F.max_pool1d(x, 3), (2, 3, 300), torch.int16),
    "volume": (lambda x: F.max_pool3d(x, 2), (2, 6, 8, 8), torch.int16),
    "adaptive": (lambda x: F.adaptive_max_pool2d(x, 3), (2, 3, 20, 20), torch.int16),
    "row": (lambda x: x.sin().max(1)[0], (3, 256), torch.uint8),
    "column": (lambda x: x.sin().min(-2)[0], (257, 3), torch.int16),
    "running maximum of rows": (lambda x: x.sin().cummax(1)[0], (3, 256), torch.uint8),
    "running minimum of columns": (lambda x: x.sin().cummin(-2)[0], (257, 3), torch.int16),
}


Function = Callable[..., Tensor]


def saved_by(function: Function, x: Tensor) -> list[torch.dtype]:
    """The dtypes of the integers that a call saves for backward."""
    saved: list[torch.dtype] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(x.detach().requires_grad_())
    return [dtype for dtype in saved if not dtype.is_floating_point and dtype != torch.bool]


def on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_places, "DEVICES", ("cpu",))


def compiled(function: Function, options: dict[str, Sequence[str]]) -> Function:
    torch._dynamo.reset()
    made: Function = torch.compile(function, backend="tcdebug", options=options)
    return made


@pytest.mark.parametrize("name", PLACES)
def test_places_are_saved_in_the_bytes_that_they_need(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpus(monkeypatch)
    function, size, dtype = PLACES[name]
    x = torch.randn(size)
    results = []
    for options, saved in (({}, dtype), (OFF, torch.int64)):
        assert saved_by(compiled(function, options), x) == [saved]
        given = x.clone().requires_grad_()
        results.append(gradients(compiled(function, options), [given]))
    assert_same(*results, exact=True)
    assert_same(results[0], gradients(function, [x.clone().requires_grad_()]))


def test_places_that_are_returned_are_saved_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpus(monkeypatch)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin().max(1)

    saved = saved_by(compiled(function, {}), torch.randn(3, 50))  # type: ignore[arg-type] # a pair
    assert saved == [torch.int64]


def test_places_in_a_plane_of_unknown_size_are_saved_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpus(monkeypatch)
    torch._dynamo.reset()
    pool = torch.compile(lambda x: F.max_pool2d(x, 2), backend="tcdebug", dynamic=True)
    assert saved_by(pool, torch.randn(2, 3, 16, 16)) == [torch.int64]
