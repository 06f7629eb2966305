"""Estimates symbolic sizes for choices that are made before the sizes are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tcdebug.compiler.ir.arithmetic.index import (
    ZERO,
    Axis,
    Index,
    Quotient,
    Remainder,
    Symbol,
    product,
)
from tcdebug.compiler.ir.arithmetic.order import Extremum

TYPICAL_SIZE = 128
"""The assumed value of an unknown size symbol."""
TYPICAL_DIMENSION = 64
"""The assumed size of a dimension of an ATen graph that is symbolic."""


def elements(sizes: Sequence[object]) -> int:
    """Return the estimated number of elements of a tensor of an ATen graph, by its sizes."""
    return math.prod(n if isinstance(n, int) else TYPICAL_DIMENSION for n in sizes)


def estimate(index: Index, known: Mapping[str, int] | None = None) -> int:
    """Return the estimated value of a size, with TYPICAL_SIZE for symbols not in `known`."""
    known = known or {}
    total = 0
    for monomial, coefficient in index.terms.items():
        term = coefficient
        for atom in monomial:
            match atom:
                case Symbol():
                    term *= known.get(atom.name, TYPICAL_SIZE)
                case Quotient():
                    top, bottom = estimate(atom.numerator, known), estimate(atom.denominator, known)
                    term *= max(1, top // max(1, bottom))
                case Remainder():
                    term *= max(1, estimate(atom.denominator, known) // 2)
                case Extremum():
                    pick = max if atom.kind == "max" else min
                    term *= pick(estimate(atom.left, known), estimate(atom.right, known))
                case _:
                    term *= TYPICAL_SIZE
        total += term
    return total


def nearest(address: Index, axes: Sequence[Axis]) -> Axis | None:
    """Return the axis along which neighbours are the closest in memory, the longest of several.

    None if the address does not vary along any axis by a known stride.
    """
    strides = {a: s for a in axes if (s := address.coefficient(a)) is not None and s != ZERO}
    where = {a: (abs(estimate(s)), -estimate(a.size)) for a, s in strides.items()}
    return min(where, key=lambda a: where[a], default=None)


def stride(address: Index, axis: Axis) -> int:
    """Return the elements between neighbours along an axis; 0 if that is not known."""
    found = address.coefficient(axis)
    return 0 if found is None else abs(estimate(found))


def with_most_points(addresses: Sequence[Index]) -> list[Index]:
    """Return the addresses that vary along as many points as any, or half of them."""
    points = [estimate(product(axis.size for axis in address.axes)) for address in addresses]
    most = max(points, default=0)
    return [a for a, count in zip(addresses, points, strict=True) if 2 * count >= most]


def begin_at_sectors(address: Index, axes: Sequence[Axis]) -> bool:
    """Return whether rows of neighbours are known to begin at multiples of 8 elements.

    Those of 4 bytes then fill sectors of memory.
    """
    along = nearest(address, axes)
    steps = [address.coefficient(a) for a in axes if a != along and a in address.axes]
    return all(s is not None and s.constant is not None and s.constant % 8 == 0 for s in steps)
