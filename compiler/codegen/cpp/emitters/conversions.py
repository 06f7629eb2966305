"""Chooses the conversions of 64-bit integers that functions make (prelude.hpp).

Without AVX-512, g++ vectorizes no loop that converts between 64-bit integers and floats by an
instruction. Functions make these conversions of other operations.
"""

from __future__ import annotations

import torch

from tcdebug.compiler.codegen.cpp.emitters.text import CHECKED, PLAIN, Conversions
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, flat_expressions, flat_indices
from tcdebug.compiler.ir.cost import has_function
from tcdebug.compiler.ir.expr import Call, Indirect
from tcdebug.compiler.ir.operations import INTEGERS

WIDE: Conversions = {
    (torch.int64, torch.float64): "to_double",
    (torch.float32, torch.int64): "to_int64",
    (torch.float64, torch.int64): "to_int64",
}
TO_FLOAT: Conversions = {(torch.int64, torch.float32): "to_float"}


def conversions_of(kernel: FlatKernel) -> Conversions:
    """Return the conversions that functions make, which are slower in loops that stay scalar.

    Loops do that divide integers, scan, or read at places that are data. `to_float` takes as long
    as the instruction for each element, and pays if it keeps a function of floats out of a scalar
    loop.
    """
    calls = [e for e in flat_expressions(kernel) if isinstance(e, Call)]
    if kernel.scans or any(e.name in CHECKED and e.dtype in INTEGERS for e in calls):
        return PLAIN
    if any(isinstance(a, Indirect) for index in flat_indices(kernel) for a in index.atoms):
        return PLAIN
    return {**WIDE, **TO_FLOAT} if any(has_function(n.body) for n in kernel.nodes) else WIDE
