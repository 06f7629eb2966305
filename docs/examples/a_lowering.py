"""A lowering: aten.dist, the norm of a difference, as loops."""
# ruff: noqa: T201

from typing import ClassVar

import torch

import tcdebug
from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.lower.site import Operand, Site
from tcdebug.compiler.lower.tensor import NotLowered, Tensor
from tcdebug.compiler.options import Options
from tcdebug.compiler.pipeline import compile_captured

aten = torch.ops.aten


def dist(site: Site, x: Tensor, y: Tensor, p: Operand = 2) -> Tensor:
    """The root of the sum of squared differences; other norms are left to ATen."""
    if p != 2 or site.dtype not in (torch.float32, torch.float64):
        raise NotLowered(f"a {p}-norm of {site.dtype}")
    if y.size and x.size[-len(y.size) :] != y.size:
        raise NotLowered("operands that broadcast both ways")

    def squared(point):
        difference = call("sub", x.at(point, site.dtype), y.broadcast(point, site.dtype))
        return call("mul", difference, difference)

    squares = Tensor(site.dtype, x.size, squared)
    total = site.reduce("sum", squares, range(len(x.size)), keepdim=False)
    return site.tensor(lambda point: call("sqrt", total.at(point)))


tcdebug.register_lowering(aten.dist.default)(dist)  # in the tree: a row of lower/reductions.py


class Externs(EventLog):
    """A log that keeps what was left to ATen, and why."""

    left: ClassVar[list[str]] = []

    def bind(self, **context):
        return self

    def emit(self, event, **context):
        if event.kind == "extern":
            self.left.append(f"{event.op}: {event.reason}")


def compiled_by(off):
    def backend(module, inputs):
        options = Options(log=False).updated(None, {"off": off})
        return compile_captured(module, inputs, options, Externs(None))

    return backend


x, y = torch.randn(50, 40), torch.randn(40)
for p, off in ((2, []), (2, ["lower.aten.dist.default"]), (1, [])):
    torch._dynamo.reset()
    Externs.left.clear()
    eager = torch.dist(x, y, p)
    compiled = torch.compile(lambda x, y, p=p: torch.dist(x, y, p), backend=compiled_by(off))(x, y)
    print(f"p={p} off={off}: close {torch.allclose(compiled, eager)}, ATen {Externs.left}")
