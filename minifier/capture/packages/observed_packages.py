"""Observes programs that a script packages with AOTInductor, where their packages are called.

The kernels of a package are called by C++ in a library, which no hook can enter. torch.compile
compiles the program again, into a module with a Python wrapper, and each call of the package is
made on copies there first. Then the package is called, and its results are compared as a whole.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.exports import (
    ONLY_MODEL,
    Unexported,
    copied_arguments,
    dynamic_dimensions,
    jit_settings,
    kept_for_files,
    models_of,
    named_by_call,
    packages_intercepted,
)
from tcdebug.minifier.capture.packages.packaged_program import PackagedProgram, program_of
from tcdebug.minifier.capture.saved_code import SavedCode
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.values.graph_check import CheckedGraph, GraphChecks

COMPILED_AGAIN = (
    "the kernels of a package are observed as inductor writes them for torch.compile; the package "
    "itself is compared as a whole"
)
NOT_WHOLE = "a package is not compared as a whole"
CONSTANTS = ("load_constants", "update_constant_buffer")
"""Methods of a loaded package that replace its weights."""


@contextlib.contextmanager
def packages_observed(checks: GraphChecks, log: EventLog) -> Iterator[None]:
    """Observe the programs that a script packages in this block, when it calls the packages."""
    packages = _ObservedPrograms(checks, SavedCode(log))
    with packages_intercepted(packages, log):
        yield


@dataclass
class _ObservedPrograms:
    """The programs that this process has packaged, by file and name."""

    checks: GraphChecks
    saved: SavedCode

    def packaging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aoti_compile_and_package`."""

        def package(exported_program: Any, *args: Any, **options: Any) -> Any:
            path = original(exported_program, *args, **options)
            settings = options.get("inductor_configs") or {}
            observed = _ObservedCalls(self.checks, exported_program, settings)
            self.saved.remember(path, observed, ONLY_MODEL)
            return path

        return package

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aot_compile`, which returns a library, or the files of one."""

        def aot_compile(gm: Any, args: Any, kwargs: Any = None, *, options: Any = None) -> Any:
            made = original(gm, args, kwargs, options=options)
            if called_by_user(sys._getframe(1)):
                program = Unexported(gm, args, kwargs)
                observed = _ObservedCalls(self.checks, program, options or {})
                for file in made if isinstance(made, list) else [made]:
                    self.saved.remember(file, observed)
            return made

        return aot_compile

    def packaging_parts(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `package_aoti`, which packages what `aot_compile` returned."""

        def package(archive_file: Any, aoti_files: Any) -> Any:
            path = original(archive_file, aoti_files)
            for name, files in models_of(aoti_files).items():
                if (observed := kept_for_files(self.saved, files)) is not None:
                    self.saved.remember(path, observed, name)
            return path

        return package

    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of a function that loads compiled code from its first argument."""
        named = named_by_call(original)

        def load(*args: Any, **options: Any) -> Any:
            loaded = original(*args, **options)
            observed = self.saved.kept(*named(*args, **options))
            return loaded if observed is None else ObservedPackage(loaded, observed)

        return load


@dataclass
class ObservedPackage:
    """A loaded package whose first calls are observed. Everything else is that of the package."""

    loaded: Any
    observe: Callable[..., Any] | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Observe the call, and call the package."""
        if self.observe is not None:
            self.observe(self.loaded, args, kwargs)
        return self.loaded(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(vars(self)["loaded"], name)
        if name not in CONSTANTS:
            return found

        def replace_weights(*args: Any, **kwargs: Any) -> Any:
            self.observe = None  # the program keeps the weights that it had
            return found(*args, **kwargs)

        return replace_weights


@dataclass
class _ObservedCalls:
    """Calls of a packaged program: compiled again, and as a whole."""

    checks: GraphChecks
    program: Any
    settings: Mapping[str, Any]
    calls: int = 0
    compiled: Callable[..., Any] | None = None
    whole: tuple[PackagedProgram, CheckedGraph] | None = None
    dynamic: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, loaded: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        """Make a call on copies, in both forms. Nothing that it changes is the script's."""
        observation = self.checks.observation
        if observation.found is not None or self.calls >= observation.most_calls:
            return
        if self.calls == 0:
            self._prepare()
        self.calls += 1
        with torch.no_grad(), torch.random.fork_rng():
            if self.compiled is not None:
                self._compiled_again(args, kwargs)
            if self.whole is not None:
                program, graph = self.whole
                if (inputs := program.leaves_of(args, kwargs)) is not None:
                    graph.compiled, _ = program.as_graph(loaded)
                    graph.check(inputs)

    def _prepare(self) -> None:
        self._note(COMPILED_AGAIN)
        module = self.program.module()
        self.dynamic = dynamic_dimensions(self.program)
        if any(True for _ in module.buffers()):  # a call may update them
            module = copy.deepcopy(module)
        options = jit_settings(self.settings) or None
        self.compiled = torch.compile(module, options=options)
        try:
            if isinstance(self.program, Unexported):
                raise ValueError("it is a library")
            whole = program_of(self.program)
            if whole.updates:
                raise ValueError("it updates its buffers or inputs")
        except Exception as problem:
            self._note(f"{NOT_WHOLE}: {problem}")
            return
        graph = self.checks.checked(AOTINDUCTOR_BACKEND, whole.module, whole.examples())
        self.whole = (whole, graph)

    def _compiled_again(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Call the program that torch.compile compiled, on copies."""
        same, named = copied_arguments(args, kwargs, self.dynamic)
        assert self.compiled is not None
        try:
            self.compiled(*same, **named)
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}"
            self._note(f"torch.compile did not run the program of a package: {reason}")
            self.compiled = None

    def _note(self, text: str) -> None:
        notes = self.checks.observation.notes
        if text not in notes:
            notes.append(text)
