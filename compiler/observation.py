"""Lets a tool see the values between the kernels of the graphs that this process compiles.

While an observer is installed, each kernel is launched by its own call, and the observer may
change the wrapper, for example to look at the values after each call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import fx

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource

Compiled = Callable[[list[Any]], Sequence[Any]]
"""A graph that takes its arguments in a list."""


@dataclass(frozen=True)
class CompiledGraph:
    """A graph whose wrapper is written and whose kernels are about to be built."""

    module: fx.GraphModule
    """The ATen graph after all passes."""
    direction: str
    values: Mapping[str, str]
    """FX node -> the variable of the wrapper that holds its value."""
    calls: Mapping[str, KernelCall]
    """Kernel -> its call."""
    path: str
    """The file with the source of the kernels; empty if it is not kept."""
    wrapper: WrapperSource


class GraphObservation(Protocol):
    """The observation of one graph."""

    def wrapped(self, graph: CompiledGraph) -> WrapperSource:
        """Return the wrapper to load."""
        ...

    def loaded(self, compiled: Compiled) -> Compiled:
        """Return what runs in place of the loaded wrapper."""
        ...


class GraphObserver(Protocol):
    """Observes the graphs of a process."""

    def begin(self, module: fx.GraphModule, direction: str) -> GraphObservation:
        """Look at an ATen graph before its passes run."""
        ...


@dataclass(frozen=True)
class Observers:
    """The observers of this process. The last one observes."""

    installed: list[GraphObserver] = field(default_factory=list)

    def begin(self, module: fx.GraphModule, direction: str) -> GraphObservation | None:
        """Begin to observe a graph; None without an observer."""
        return self.installed[-1].begin(module, direction) if self.installed else None

    @contextlib.contextmanager
    def observing(self, observer: GraphObserver) -> Iterator[None]:
        """Observe the graphs that are compiled while the block runs, in all threads."""
        self.installed.append(observer)
        try:
            yield
        finally:
            self.installed.remove(observer)


OBSERVERS = Observers()
"""The observers of this process."""
