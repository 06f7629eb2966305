"""Numbers for symbolic sizes, where a choice has to be made before they are known."""

from __future__ import annotations

from tcdebug.compiler.ir.index import Extremum, Index, Quotient, Remainder, Symbol

TYPICAL_SIZE = 128
"""What a size symbol is taken for when sizes are compared."""


def estimate(index: Index) -> int:
    """A number for a size, with TYPICAL_SIZE for what is not known."""
    total = 0
    for monomial, coefficient in index.terms.items():
        term = coefficient
        for atom in monomial:
            match atom:
                case Symbol():
                    term *= TYPICAL_SIZE
                case Quotient():
                    term *= max(1, estimate(atom.numerator) // max(1, estimate(atom.denominator)))
                case Remainder():
                    term *= max(1, estimate(atom.denominator) // 2)
                case Extremum():
                    pick = max if atom.kind == "max" else min
                    term *= pick(estimate(atom.left), estimate(atom.right))
                case _:
                    term *= TYPICAL_SIZE
        total += term
    return total
