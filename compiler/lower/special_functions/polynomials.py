"""Lowerings of functions of two numbers that need loops, which only CPU kernels support."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.build import call
from tcdebug.compiler.ir.operations import POLYNOMIALS
from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.special_functions.formula import Term, formula

aten = torch.ops.aten


def _named(name: str) -> Lowering:
    return formula(lambda x, y: Term(call(name, x.expr, y.expr)))


def _shifted(name: str) -> Lowering:
    """Return the polynomial on [0, 1] instead of [-1, 1]."""
    return formula(lambda x, n: Term(call(name, (x + x - 1).expr, n.expr)))


def _forms(name: str, scalars: tuple[str, str]) -> list[torch._ops.OpOverload]:
    packet = getattr(aten, name)
    return [packet.default, *(getattr(packet, form) for form in scalars)]


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.igamma.default: _named("igamma"),
    aten.igammac.default: _named("igammac"),
    **dict.fromkeys(_forms("special_zeta", ("self_scalar", "other_scalar")), _named("zeta")),
    **{
        form: _named(name)
        for name in POLYNOMIALS
        for form in _forms(
            "special_" + "_polynomial_".join(name.rsplit("_", 1)), ("x_scalar", "n_scalar")
        )
    },
    **{
        form: _shifted(f"chebyshev_{kind}")
        for kind in "tuvw"
        for form in _forms(f"special_shifted_chebyshev_polynomial_{kind}", ("x_scalar", "n_scalar"))
    },
}
