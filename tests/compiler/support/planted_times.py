"""Planted times of products: records what is measured, and returns times that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tcdebug.compiler.codegen.triton.source import alone
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.runtime.cuda.timing import Measured, Ways
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass
class Planted:
    """Replaces `Bench`: times of ways by name. A negative time means that the way cannot be run."""

    milliseconds: Callable[[str], float]
    asked: list[Ways] = field(default_factory=list)
    kernels: list[TritonKernel] = field(default_factory=list)
    """The source of the last way of each product."""
    _buffers: Mapping[str, Buffer] = field(default_factory=dict)

    def __call__(
        self, buffers: Mapping[str, Buffer], sizes: Mapping[str, int], options: Options
    ) -> Planted:
        """Has the signature of `Bench`."""
        self._buffers = buffers
        return self

    def measured(self, ways: Ways) -> Measured:
        """Returns the planted times."""
        self.asked.append(ways)
        last = list(ways.values())[-1][-1]
        if self._buffers and isinstance(last, Kernel):
            self.kernels.append(alone(last, self._buffers))
        times = {name: self.milliseconds(name) for name in ways}
        return Measured(
            {name: t for name, t in times.items() if t >= 0},
            {name: "planted" for name, t in times.items() if t < 0},
        )


def templates_win(name: str) -> float:
    """Every template is faster than the call, and those with a prologue are the fastest."""
    return 1.0 if name == "extern" else 0.4 if "prologue" in name else 0.5
