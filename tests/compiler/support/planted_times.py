"""Times of products that were never measured: what was asked, and what a test says it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tcdebug.compiler.codegen.triton.source import TritonKernel, alone
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.runtime.cuda.timing import Measured, Ways
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass
class Planted:
    """In the place of `Bench`: times of ways by their names, below zero where one cannot be run."""

    milliseconds: Callable[[str], float]
    asked: list[Ways] = field(default_factory=list)
    kernels: list[TritonKernel] = field(default_factory=list)
    """The last way of each product as it is written."""
    _buffers: Mapping[str, Buffer] = field(default_factory=dict)

    def __call__(
        self, buffers: Mapping[str, Buffer], sizes: Mapping[str, int], options: Options
    ) -> Planted:
        """As a bench is made."""
        self._buffers = buffers
        return self

    def measured(self, ways: Ways) -> Measured:
        """As a bench would say it."""
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
    """Every template is faster than the call, what has a prologue most of all."""
    return 1.0 if name == "extern" else 0.4 if "prologue" in name else 0.5
