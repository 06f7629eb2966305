"""The loops around the inner ones, whole or divided among threads."""

from __future__ import annotations

from dataclasses import dataclass

from tcdebug.compiler.codegen.cpp.emitters.text import index_text, loop
from tcdebug.compiler.ir.arithmetic.index import Axis


@dataclass(frozen=True)
class OuterLoop:
    """A loop around the inner ones, over a whole axis."""

    axis: Axis
    step: int = 1

    @property
    def count(self) -> str:
        """The number of iterations, in C++."""
        size = index_text(self.axis.size)
        return f"({size})" if self.step == 1 else f"(({size} + {self.step - 1}) / {self.step})"

    @property
    def iteration(self) -> str:
        """The number of the current iteration, in C++."""
        return self.axis.name if self.step == 1 else f"{self.axis.name} / {self.step}"

    @property
    def whole(self) -> str:
        """The head of the loop over all iterations."""
        return loop(self.axis, "0", index_text(self.axis.size), self.step)

    def part(self, first: str, last: str) -> str:
        """Return the head of the loop over the iterations from `first` to before `last`.

        g++ vectorizes loops within it only if the bounds of the variable are plain.
        """
        scale = "" if self.step == 1 else f" * {self.step}"
        return loop(self.axis, f"{first}{scale}", f"{last}{scale}", self.step)
