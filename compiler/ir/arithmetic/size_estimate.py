"""Estimates symbolic sizes for choices that are made before the sizes are known."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.arithmetic.index import Index, Quotient, Remainder, Symbol
from tcdebug.compiler.ir.arithmetic.order import Extremum

TYPICAL_SIZE = 128
"""The assumed value of an unknown size symbol."""


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
