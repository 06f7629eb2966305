"""Operator -> lowering, for every operator that has one.

A node whose operator has a row in `LOWERINGS` becomes loops; a view becomes a change of indices;
everything else is an extern call to ATen. All three are legal for every node, so the gate may hold
back any lowering.
"""

from __future__ import annotations

from tcdebug.compiler.lower.indexing import gathering, joining, searching, views
from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.pointwise import composite, elementwise, factories, random_numbers
from tcdebug.compiler.lower.reductions import adaptive_pooling, pooling, reductions, scans
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
    **gathering.TABLE,
    **polynomials.TABLE,
    **pooling.TABLE,
    **scatter_reductions.TABLE,
    **scattering.TABLE,
    **composite.TABLE,
    **input_updates.TABLE,
}

LOWERINGS = read_through(OWN, REGISTRY.lowerings)
"""Operator -> lowering, the registered ones included."""

LATE: dict[str, Lowering] = {**elementwise.LATE, **random_numbers.LATE}
"""Name of an operator -> lowering, where the operator is registered with torch only on use."""

VIEWS: dict[Operator, Lowering] = {**views.STRIDED}
