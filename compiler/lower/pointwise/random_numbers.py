"""The lowering of random bits, from which `passes/random_numbers.py` makes distributions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import Point, Tensor


def random_bits(site: Site, seed: Tensor, stream: int, size: Sequence[object]) -> Tensor:
    """Philox of each position in row-major order."""

    def element(point: Point) -> Expr:
        flat = ZERO
        for where, length in zip(point, site.size, strict=True):
            flat = flat * length + where
        return call("philox", seed.at(()), constant(torch.int64, stream), index_value(flat))

    return site.tensor(element)


LATE: dict[str, Lowering] = {"tcdebug.random_bits.default": random_bits}
