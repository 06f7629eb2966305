"""Observes the kernels of the embedded compiler: hooks in the wrapper that it writes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import fx

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource
from tcdebug.compiler.observation import OBSERVERS, Compiled, CompiledGraph
from tcdebug.minifier.cases.case import copy_module
from tcdebug.minifier.values.observation import Observation
from tcdebug.minifier.values.observed_graph import Access, ObservedGraph
from tcdebug.minifier.values.program import ObservedProgram
from tcdebug.minifier.values.reference import ReferenceGraph, updates_memory
from tcdebug.minifier.values.wrapper_code import AFTER, BEFORE, RETURN, Statement, instrument

PREFIX = "run_"
"""The prefix of the functions that run kernels."""


@contextlib.contextmanager
def embedded_observed(observation: Observation) -> Iterator[None]:
    """Observe the graphs that the embedded compiler compiles in this block."""
    with OBSERVERS.observing(_EmbeddedObserver(observation)):
        yield


@dataclass(frozen=True)
class _EmbeddedObserver:
    observation: Observation

    def begin(self, module: fx.GraphModule, direction: str) -> _EmbeddedObservation:
        """Copy a graph before its passes run."""
        return _EmbeddedObservation(self.observation, copy_module(module))


@dataclass
class _EmbeddedObservation:
    observation: Observation
    before: fx.GraphModule
    program: ObservedProgram | None = None

    def wrapped(self, graph: CompiledGraph) -> WrapperSource:
        """Return a wrapper whose `call` follows the values, where a call is observed."""
        tree = ast.parse(graph.wrapper.text)
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        statements = instrument(function)
        module = copy_module(graph.module)
        observed = ObservedGraph(
            self.observation,
            self.observation.next_graph(),
            graph.direction,
            self.before,
            ReferenceGraph(module),
            _nodes(graph.values, module),
            _EmbeddedKernels(graph.calls, graph.path),
            statements,
        )
        self.program = program = ObservedProgram(observed)
        names = dict(zip((BEFORE, AFTER, RETURN), program.hooks(), strict=True))
        return replace(
            graph.wrapper,
            text=ast.unparse(tree),
            names={**graph.wrapper.names, **names},
            direct="",
        )

    def loaded(self, compiled: Compiled) -> Compiled:
        """Return the observed graph."""
        assert self.program is not None
        self.program.plain = self.program.hooked = compiled
        return self.program


def _nodes(values: Mapping[str, str], module: fx.GraphModule) -> dict[str, str]:
    """Return the FX node whose value each variable holds, without nodes that update memory."""
    found: dict[str, str] = {}
    for node in module.graph.nodes:
        if node.name in values and not updates_memory(node):
            found.setdefault(values[node.name], node.name)
    return found


@dataclass(frozen=True)
class _EmbeddedKernels:
    """The kernels of a graph, as the compiler describes their calls."""

    calls: Mapping[str, KernelCall]
    path: str

    def name(self, statement: Statement) -> str:
        """Return the name of the kernel that a statement calls."""
        name = statement.callee.removeprefix(PREFIX)
        return name if statement.callee.startswith(PREFIX) and name in self.calls else ""

    def source(self, name: str) -> tuple[str, str]:
        """Return the text of a kernel and its file."""
        call = self.calls[name]
        return self.calls[call.code].source, self.path

    def access(self, statement: Statement) -> Access | None:
        """Return what a call reads and writes."""
        call = self.calls.get(self.name(statement))
        if call is None:
            return None
        reads = (*call.loads, *call.parameters, *call.into.values())
        return Access(tuple(dict.fromkeys(reads)), call.stores)
