"""A compiled graph whose steps are observed: its code, and the graph that it should compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import fx

from tcdebug.minifier.values.observation import Observation, Step
from tcdebug.minifier.values.reference import ReferenceGraph
from tcdebug.minifier.values.wrapper_code import Statement


@dataclass(frozen=True)
class Access:
    """The variables that a kernel reads and writes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    former: tuple[str, ...] = ()
    """Those of `writes` whose memory is left with the value of its former variable."""


class Kernels(Protocol):
    """The kernels that a wrapper calls."""

    def name(self, statement: Statement) -> str:
        """Return the name of the kernel that a statement calls; empty if it calls none."""
        ...

    def access(self, statement: Statement) -> Access | None:
        """Return what a call of a kernel reads and writes; None if that is not known."""
        ...

    def source(self, name: str) -> tuple[str, str]:
        """Return the text of a kernel and the file that holds it."""
        ...


@dataclass(frozen=True)
class ObservedGraph:
    """A compiled ATen graph."""

    observation: Observation
    ordinal: int
    direction: str
    before: fx.GraphModule | None
    """The graph before the compiler's passes."""
    reference: ReferenceGraph
    """The graph after them, which the kernels compute."""
    nodes: Mapping[str, str]
    """Variable -> the FX node whose value it holds."""
    kernels: Kernels
    statements: tuple[Statement, ...]

    def step(self, number: int, statement: Statement) -> Step:
        """Return the step that a statement is, which runs as the n-th of a call, from 1."""
        if name := self.kernels.name(statement):
            return Step(number, name, "kernel", *self.kernels.source(name))
        return Step(number, statement.callee, "operator", statement.text)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The variables of the arguments, which are also the names of their nodes."""
        found = self.reference.module.graph.find_nodes(op="placeholder")
        return tuple(node.name for node in found)
