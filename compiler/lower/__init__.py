"""The lower stage: the ATen graph becomes loop IR.

A node whose operator has a row in `LOWERINGS` becomes loops; a view becomes a change of indices;
everything else is an extern call to ATen. All three are legal for every node, so the gate may hold
back any lowering.
"""

from __future__ import annotations

import torch

from tcdebug.compiler.lower import (
    adaptive_pooling,
    bessel,
    elementwise,
    error_functions,
    factories,
    gamma,
    indexing,
    joining,
    polynomials,
    pooling,
    random_numbers,
    reductions,
    scans,
    scatter_reductions,
    scattering,
    searching,
    special,
    storing,
    views,
)
from tcdebug.compiler.lower.site import Lowering

LOWERINGS: dict[torch._ops.OpOverload, Lowering] = {
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
    **indexing.TABLE,
    **polynomials.TABLE,
    **pooling.TABLE,
    **scatter_reductions.TABLE,
    **scattering.TABLE,
    **special.TABLE,
    **storing.TABLE,
}
LATE: dict[str, Lowering] = {**elementwise.LATE, **random_numbers.LATE}
VIEWS: dict[torch._ops.OpOverload, Lowering] = views.STRIDED
