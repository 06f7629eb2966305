"""Tensor subclasses of several kinds, as scripts define them or torch does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing

WEIGHTS = (torch.ops.aten.detach.default, torch.ops.aten.clone.default)


class Quantised(torch.Tensor):
    """A weight of integers with a scale and a note, which a product converts to floats."""

    data8: torch.Tensor
    scale: torch.Tensor
    note: Any

    @staticmethod
    def __new__(cls, data8: torch.Tensor, scale: torch.Tensor, note: Any) -> Quantised:
        made: Any = torch.Tensor._make_wrapper_subclass
        return made(cls, data8.shape, dtype=scale.dtype, device=data8.device)

    def __init__(self, data8: torch.Tensor, scale: torch.Tensor, note: Any) -> None:
        self.data8, self.scale, self.note = data8, scale, note

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["data8", "scale"], self.note

    @staticmethod
    def __tensor_unflatten__(inner: Any, note: Any, size: Any, stride: Any) -> Quantised:
        return Quantised(inner["data8"], inner["scale"], note)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WEIGHTS:
            (old,) = args
            made = cls(func(old.data8), func(old.scale), old.note)
            return return_and_correct_aliasing(func, args, kwargs or {}, made)

        def floats(value: Any) -> Any:
            return value.data8 * value.scale if isinstance(value, cls) else value

        return func(*map(floats, args), **(kwargs or {}))


class Doubling(torch.Tensor):
    """A class that only overrides functions: its sums are twice what they are."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
            return found * 2 if func in (torch.add, torch.Tensor.add) else found


def two(*size: int) -> TwoTensor:
    """Return two tensors of noise as one."""
    return TwoTensor(torch.randn(size), torch.randn(size))


def jagged(*rows: int, gradient: bool = False) -> torch.Tensor:
    """Return a nested tensor with rows of these lengths, of four numbers each."""
    parts = [torch.randn(row, 4) for row in rows]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=gradient)


@contextmanager
def fake_ranks(count: int) -> Iterator[Any]:
    """Create torch's fake process group, and yield a mesh of all its ranks."""
    dist.init_process_group("fake", rank=0, world_size=count, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (count,))
    finally:
        dist.destroy_process_group()


PLACEMENTS: tuple[Placement, ...] = (Shard(0), Shard(1), Replicate(), Partial())


def placed(mesh: Any, placement: Placement) -> DTensor:
    """Return a part of a distributed tensor."""
    return DTensor.from_local(torch.randn(2, 4), mesh, [placement], run_check=False)
