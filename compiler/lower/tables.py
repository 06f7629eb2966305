"""The tables of all lowerings.

A node whose operator is in `LOWERINGS` becomes loops. A view changes indices. Every other node is
an extern call to ATen. An extern call is legal for every node, so the gate may deny any lowering.
"""

from __future__ import annotations

from tcdebug.compiler.lower.indexing import gathering, joining, searching, sorting, views
from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.pointwise import composite, elementwise, factories, random_numbers
from tcdebug.compiler.lower.reductions import (
    adaptive_pooling,
    pooling,
    reductions,
    scans,
    unfolding,
)
from tcdebug.compiler.lower.scatter import input_updates, scatter_reductions, scattering
from tcdebug.compiler.lower.special_functions import bessel, error_functions, gamma, polynomials
from tcdebug.compiler.registry import REGISTRY, Operator, read_through

OWN: dict[Operator, Lowering] = {
    **adaptive_pooling.TABLE,
    **bessel.TABLE,
    **elementwise.TABLE,
    **error_functions.TABLE,
    **factories.TABLE,
    **gamma.TABLE,
    **joining.TABLE,
    **reductions.TABLE,
    **scans.TABLE,
    **searching.TABLE,
    **sorting.TABLE,
    **gathering.TABLE,
    **polynomials.TABLE,
    **pooling.TABLE,
    **scatter_reductions.TABLE,
    **scattering.TABLE,
    **composite.TABLE,
    **input_updates.TABLE,
    **unfolding.TABLE,
}

LOWERINGS = read_through(OWN, REGISTRY.lowerings)
"""Operator -> lowering, including registered ones."""

LATE: dict[str, Lowering] = {**elementwise.LATE, **random_numbers.LATE}
"""Name of an operator -> lowering, for operators that are registered with torch on first use."""

VIEWS: dict[Operator, Lowering] = {**views.STRIDED}
