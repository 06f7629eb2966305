"""Watches graphs that a script gives directly to inductor, and programs that it packages."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.capture.entries import LOAD_ARTIFACT, EntryCall, entries_wrapped
from tcdebug.minifier.capture.exports import AOT_COMPILE, LOAD, PACKAGE
from tcdebug.minifier.capture.packages.packaged_program import PackagedProgram, program_of
from tcdebug.minifier.capture.saved_code import SavedCode, patched_when_imported
from tcdebug.minifier.capture.watching.watcher import WatchedBackend, WatchedGraph, Watcher
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.targets.backends import Backend

LIBRARY = "only programs that aoti_compile_and_package compiles are"


@contextlib.contextmanager
def entries_watched(watcher: Watcher, log: EventLog) -> Iterator[None]:
    """Watch what a script compiles with inductor without torch.compile."""
    packages = _WatchedPackages(watcher)
    saved = SavedCode(log)
    with contextlib.ExitStack() as patches:
        patches.enter_context(entries_wrapped(partial(_watched_entry, watcher, saved), log))
        patched_when_imported(patches, LOAD_ARTIFACT, partial(_loading, saved), log)
        patched_when_imported(patches, PACKAGE, packages.packaging, log)
        patched_when_imported(patches, LOAD, packages.loading, log)
        patched_when_imported(patches, AOT_COMPILE, packages.compiling, log)
        yield


def _watched_entry(
    watcher: Watcher, saved: SavedCode, call: EntryCall
) -> Callable[..., Any] | None:
    if watcher.is_compiling or not isinstance(call.module, torch.fx.GraphModule):
        return None
    watched = WatchedBackend(watcher, call.again, call.described(str(watcher.folder)), entered=True)
    return WatchedArtifact(watched(call.module, call.inputs), saved)


def _loading(saved: SavedCode, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the replacement of `CompiledArtifact.load`: what a watched artifact saved is watched."""

    def load(*, path: str, **options: Any) -> Any:
        loaded, artifact = original(path=path, **options), saved.kept(path)
        if not isinstance(artifact, WatchedArtifact):
            return loaded
        return WatchedArtifact(replace(artifact.graph, compiled=loaded), saved)

    return load


@dataclass
class WatchedArtifact:
    """Compiled code whose calls are watched. Everything else is that of the code."""

    graph: WatchedGraph
    saved: SavedCode

    def __call__(self, *args: Any) -> Any:
        """Call the code. It also takes its arguments as one list."""
        if len(args) == 1 and isinstance(args[0], list):
            args = tuple(args[0])
        return self.graph(*args)

    def __getattr__(self, name: str) -> Any:
        found = getattr(vars(self)["graph"].compiled, name)
        if name != "save":
            return found

        def save(*, path: str, **options: Any) -> Any:
            self.saved.remember(path, self)
            return found(path=path, **options)

        return save


@dataclass
class _WatchedPackages:
    """The programs that a process has packaged, by the real path of the package."""

    watcher: Watcher
    programs: dict[str, tuple[PackagedProgram, WatchedGraph]] = field(default_factory=dict)

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
            graph = watched.watch(program.module, program.examples(), compiled)
            next(self.watcher.ordinals)  # of a search, which judges a program in two ways
            path = graph.compiled
            if isinstance(path, str | os.PathLike):
                self.programs[os.path.realpath(path)] = (program, graph)
            return path

        return package

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aot_compile`, which says that a library is not watched."""

        def aot_compile(*args: Any, **options: Any) -> Any:
            if called_by_user(sys._getframe(1)):
                self.watcher.log.emit(Fallback("a library of AOTInductor is not watched", LIBRARY))
            return original(*args, **options)

        return aot_compile

    def _program(self, exported: Any) -> PackagedProgram | None:
        """Return what is watched of an exported program; None if it cannot be replayed."""
        if self.watcher.is_compiling or not isinstance(exported, ExportedProgram):
            return None
        try:
            return program_of(exported)
        except Exception as problem:  # a program that cannot be watched still runs
            self.watcher.log.emit(Fallback("a program of AOTInductor is not watched", str(problem)))
            return None

    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `load_package`."""

        def load(path: Any, *args: Any, **options: Any) -> Any:
            loaded = original(path, *args, **options)
            known = isinstance(path, str | os.PathLike)
            program = self.programs.get(os.path.realpath(path)) if known else None
            return loaded if program is None else WatchedPackage(loaded, *program)

        return load


@dataclass
class WatchedPackage:
    """A loaded package whose calls are watched. Everything else is that of the package."""

    loaded: Any
    program: PackagedProgram
    graph: WatchedGraph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the package."""
        program, graph = self.program, self.graph
        inputs = program.leaves_of(args, kwargs)
        if inputs is None:
            return self.loaded(*args, **kwargs)
        graph.compiled, nestings = program.as_graph(self.loaded)
        graph.compared = not program.updates
        outputs = graph(*inputs)
        return pytree.tree_unflatten(list(outputs), nestings[-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["loaded"], name)
