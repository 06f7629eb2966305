"""codegen.reversed_rows: reverses neighbours that a loop visits from the last to the first.

g++ does not vectorize such a loop if its elements differ in width, as in the gradient of a sum of
bfloat16 numbers up to each point. Before the loop, what it reads is therefore copied to an array in
the order of its points.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.codegen.cpp.emitters.emit import INNERMOST, Place
from tcdebug.compiler.codegen.cpp.emitters.float16_rows import (
    BACKWARDS,
    ConvertingEmitter,
    OpenRun,
    converted_load,
)
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, element
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.arithmetic.index import Axis, Index
from tcdebug.compiler.ir.expr import Expr, Load, walk


def reverses_rows(kernel: FlatKernel, along: Axis | None) -> bool:
    """Return whether the kernel reads neighbours in reverse, and elements of several widths."""
    inside = [node for node in kernel.nodes if node.inside]
    found = [expr for node in inside for expr in walk(node.body)]
    loads = [expr for expr in found if isinstance(expr, Load) and expr.index]
    dtypes = {expr.dtype for expr in found if expr.dtype.is_floating_point}
    dtypes |= {load.dtype for load in loads} | {node.dtype for node in inside}
    widths = {dtype.itemsize for dtype in dtypes}
    if along is None or len(widths) == 1:
        return False
    strides = (load.index[0].coefficient(along) for load in loads)
    return any(stride is not None and stride.constant == BACKWARDS for stride in strides)


class ReversingEmitter(ConvertingEmitter):
    """Writes expressions into loops whose operands are reversed before them.

    `converts` says whether float16 numbers are also converted before the loops.
    """

    def __init__(self, storage: Mapping[str, str], *, converts: bool) -> None:
        super().__init__(storage)
        self._converts = converts

    def _run_of(self, address: Index, step: int = 1) -> OpenRun | None:
        left_out = step == 1 and not self._converts
        return None if left_out else super()._run_of(address, step)

    def _is_converted(self, load: Load) -> bool:
        backwards = self._run_of(load.index[0], BACKWARDS)
        return super()._is_converted(load) or (self._converts and backwards is not None)

    def _compute(self, node: Expr) -> Place:
        converted = converted_load(node) if self._converts else None
        load = converted or node
        if not isinstance(load, Load) or not load.index:
            return super()._compute(node)
        found = self._run_of(load.index[0], BACKWARDS)
        if found is None:
            return super()._compute(node)
        run, name = found.run, self.fresh("reversed")
        memory = self._first(self._storage[load.buffer], load.index[0], run)
        found.before.append(f"{TYPES[load.dtype]} {name}[{run.most}];")
        found.before.append(f"reverse({memory}, {run.count}, {name});")
        if converted is not None:
            name = self._widened_array(found, name)
        text = f"{name}[{run.place}]"
        return self._define(node, text if converted else element(text, load.dtype), INNERMOST)
