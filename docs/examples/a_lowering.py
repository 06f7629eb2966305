"""A lowering: aten.dot, the sum of products of two vectors, as loops."""
# ruff: noqa: T201

from typing import ClassVar

import torch

import tcdebug
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.lower.interface.site import Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor
from tcdebug.compiler.pipeline import compile_captured

aten = torch.ops.aten


def dot(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The sum of products of floats; other types are left to ATen."""
    if site.dtype not in (torch.float32, torch.float64):
        raise NotLowered(f"vectors of {site.dtype}")

    def multiplied(point):
        return call("mul", x.at(point, site.dtype), y.at(point, site.dtype))

    products = Tensor(site.dtype, x.size, multiplied)
    total = site.reduce("sum", products, range(len(x.size)), keepdim=False)
    return site.tensor(lambda point: total.at(point))


tcdebug.register_lowering(aten.dot.default)(dot)  # in the tree: a row of a TABLE


class Externs(EventLog):
    """A log that keeps the operators left to ATen, with reasons."""

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


f32, i64 = torch.float32, torch.int64
for dtype, off in ((f32, []), (f32, ["lower.aten.dot.default"]), (i64, [])):
    torch._dynamo.reset()
    Externs.left.clear()
    x, y = (torch.arange(50) % k for k in (7, 5))
    x, y = x.to(dtype), y.to(dtype)
    compiled = torch.compile(lambda x, y: torch.dot(x, y), backend=compiled_by(off))
    print(f"{dtype} off={off}: {compiled(x, y).item()}, eager {torch.dot(x, y).item()}")
    print(f"  left to ATen: {Externs.left}")
