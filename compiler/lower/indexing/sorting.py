"""Lowerings of sorts of short rows on a GPU.

ATen launches several kernels for a sort, and nothing can be fused with it.
"""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.build import compute_dtype
from tcdebug.compiler.ir.expr import Expr, Indirect
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten

DEVICES = ("cuda",)
"""Other devices keep ATen's sort."""
LONGEST = 512
"""The longest row that is sorted in registers. For 1000 elements, ATen takes less time."""
UNSTABLE = 32
"""ATen reorders equal elements of rows up to this length, unless the sort shall be stable."""
NARROW = torch.int16
"""The dtype of places in memory, from which later kernels gather."""
KEYS = (torch.float32, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""The dtypes that fit half of the integers that are sorted."""


def sort(site: Site, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """x sorted along a dimension, and the place of each element in x."""
    return stable_sort(site, x, stable=False, dim=dim, descending=descending)


def stable_sort(
    site: Site, x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """x sorted along a dimension, with equal elements in their order, and their places in x."""
    wide = compute_dtype(x.dtype)
    if site.result(0).device.type not in DEVICES:
        raise NotLowered("a sort on a CPU")
    if not x.size or wide not in KEYS:
        raise NotLowered(f"a sort of {x.dtype} in {len(x.size)} dimensions")
    at = normal_dim(dim, len(x.size))
    length = x.size[at].constant
    if length is None or not (1 if stable else UNSTABLE + 1) <= length <= LONGEST:
        raise NotLowered(f"a sort of {x.size[at]} elements")
    converted = Tensor(wide, x.size, lambda point: x.at(point, wide))
    kind = "argsort_down" if descending else "argsort"
    narrow = site.scan(kind, converted, at, stored=NARROW)  # only a result of the graph is wide
    places = Tensor(torch.int64, x.size, lambda point: narrow.at(point, torch.int64))

    def value(point: Point) -> Expr:
        place = to_index(Indirect(places.at(point), x.size[at], checked=False))
        return x.at((*point[:at], place, *point[at + 1 :]))

    return site.tensor(value), places


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.sort.default: sort,
    aten.sort.stable: stable_sort,
}
