"""Watches graphs that a script gives directly to inductor, and programs that it packages."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.capture.entries import EntryCall, entries_wrapped
from tcdebug.minifier.capture.exports import AOT_COMPILE, LOAD, PACKAGE
from tcdebug.minifier.capture.saved_code import patched_when_imported
from tcdebug.minifier.capture.watching.watcher import WatchedBackend, WatchedGraph, Watcher
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.targets.backends import Backend

LIBRARY = "only programs that aoti_compile_and_package compiles are"
WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
"""The inputs of an exported graph that its program holds."""


@contextlib.contextmanager
def entries_watched(watcher: Watcher, log: EventLog) -> Iterator[None]:
    """Watch what a script compiles with inductor without torch.compile."""
    packages = _WatchedPackages(watcher)
    with contextlib.ExitStack() as patches:
        patches.enter_context(entries_wrapped(partial(_watched_entry, watcher), log))
        patched_when_imported(patches, PACKAGE, packages.packaging, log)
        patched_when_imported(patches, LOAD, packages.loading, log)
        patched_when_imported(patches, AOT_COMPILE, packages.compiling, log)
        yield


def _watched_entry(watcher: Watcher, call: EntryCall) -> Callable[..., Any] | None:
    if watcher.is_compiling or not isinstance(call.module, torch.fx.GraphModule):
        return None
    watched = WatchedBackend(watcher, call.again, call.described(str(watcher.folder)), entered=True)
    return WatchedArtifact(watched(call.module, call.inputs))


@dataclass
class WatchedArtifact:
    """Compiled code whose calls are watched. Everything else is that of the code."""

    graph: WatchedGraph

    def __call__(self, *args: Any) -> Any:
        """Call the code. It also takes its arguments as one list."""
        if len(args) == 1 and isinstance(args[0], list):
            args = tuple(args[0])
        return self.graph(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["graph"].compiled, name)


@dataclass
class _WatchedPackages:
    """The programs that a process has packaged, by the real path of the package."""

    watcher: Watcher
    programs: dict[str, _PackagedProgram] = field(default_factory=dict)

    def packaging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aoti_compile_and_package`."""

        def package(exported_program: Any, *args: Any, **options: Any) -> Any:
            compiled = partial(original, exported_program, *args, **options)
            program = self._program(exported_program)
            if program is None:
                return compiled()
            settings = dict(options.get("inductor_configs") or {})
            backend = Backend(
                AOTINDUCTOR_BACKEND, AOTINDUCTOR_BACKEND, options=settings,
                run_dir=str(self.watcher.folder),
            )  # fmt: skip
            watched = WatchedBackend(self.watcher, None, backend, entered=True)
            program.graph = watched.watch(program.module, program.examples(), compiled)
            next(self.watcher.ordinals)  # of a search, which judges a program in two ways
            path = program.graph.compiled
            if isinstance(path, str | os.PathLike):
                self.programs[os.path.realpath(path)] = program
            return path

        return package

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aot_compile`, which says that a library is not watched."""

        def aot_compile(*args: Any, **options: Any) -> Any:
            if called_by_user(sys._getframe(1)):
                self.watcher.log.emit(Fallback("a library of AOTInductor is not watched", LIBRARY))
            return original(*args, **options)

        return aot_compile

    def _program(self, exported: Any) -> _PackagedProgram | None:
        """Return what is watched of an exported program; None if it cannot be replayed."""
        if self.watcher.is_compiling or not isinstance(exported, ExportedProgram):
            return None
        try:
            return _program_of(exported)
        except Exception as problem:  # a program that cannot be watched still runs
            self.watcher.log.emit(Fallback("a program of AOTInductor is not watched", str(problem)))
            return None

    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `load_package`."""

        def load(path: Any, *args: Any, **options: Any) -> Any:
            loaded = original(path, *args, **options)
            known = isinstance(path, str | os.PathLike)
            program = self.programs.get(os.path.realpath(path)) if known else None
            return loaded if program is None else WatchedPackage(loaded, program)

        return load


@dataclass
class _PackagedProgram:
    """An exported program as a graph whose first inputs are its weights."""

    module: torch.fx.GraphModule
    weights: Sequence[torch.Tensor]
    example_leaves: Sequence[Any]
    structure: pytree.TreeSpec
    """How its arguments are nested."""
    named: Sequence[str]
    """The order of its keyword arguments."""
    updates: bool
    """Whether it updates a buffer or an input. Its graph then returns more than the program."""
    graph: WatchedGraph | None = None

    def examples(self) -> list[Any]:
        """Return the inputs of its graph, with the examples of the program."""
        return [*self.weights, *map(_detached, self.example_leaves)]


def _program_of(exported: ExportedProgram) -> _PackagedProgram:
    """Return an exported program. Raises ValueError if it has inputs that a graph cannot state."""
    specs = exported.graph_signature.input_specs
    kinds = {spec.kind for spec in specs}
    if others := kinds - {*WEIGHTS, InputKind.USER_INPUT}:
        raise ValueError(f"it has inputs of the kind {min(kind.name for kind in others)}")
    held = {**exported.constants, **exported.state_dict}
    weights = [_detached(held[str(s.target)]) for s in specs if s.kind in WEIGHTS]
    args, kwargs = exported.example_inputs or ((), {})
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if len(weights) + len(leaves) != len(specs):
        raise ValueError("it has no example inputs")
    signature = exported.graph_signature
    updates = bool(signature.buffers_to_mutate or signature.user_inputs_to_mutate)
    return _PackagedProgram(exported.graph_module, weights, leaves, structure, [*kwargs], updates)


@dataclass
class WatchedPackage:
    """A loaded package whose calls are watched. Everything else is that of the package."""

    loaded: Any
    program: _PackagedProgram

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the package."""
        program, graph = self.program, self.program.graph
        named = {name: kwargs[name] for name in program.named if name in kwargs}
        leaves, structure = pytree.tree_flatten((args, named))
        if graph is None or structure != program.structure or len(named) != len(kwargs):
            return self.loaded(*args, **kwargs)
        results: list[pytree.TreeSpec] = []

        def call(*values: Any) -> tuple[Any, ...]:
            given, by_name = pytree.tree_unflatten([*values[len(program.weights) :]], structure)
            found, result = pytree.tree_flatten(self.loaded(*given, **by_name))
            results.append(result)
            return tuple(found)

        graph.compiled, graph.compared = call, not program.updates
        outputs = graph(*program.weights, *leaves)
        return pytree.tree_unflatten(list(outputs), results[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["loaded"], name)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
