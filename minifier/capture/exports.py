"""Replaces the programs that a script exports and compiles with AOTInductor.

A script that exports never calls torch.compile. What it loads from a package is replaced here, so
that its layers can be switched off, and its graphs judged, like those of any other script.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.export import ExportedProgram

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import ProgramExported, ProgramTraced
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.capture.aot_functions import aot_functions_replaced
from tcdebug.minifier.capture.saved_code import SavedCode, patched_when_imported
from tcdebug.minifier.cases.case import flatten
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.subjects.protected_files import SAVE_PROGRAM
from tcdebug.minifier.targets.backends import EAGER, INDUCTOR

EAGER_EXPORTS = "a script in eager still exports its programs"
EXPORT = Patch("torch.export", "export", EAGER_EXPORTS)
DRAFT_EXPORT = Patch("torch.export", "draft_export", EAGER_EXPORTS)
LOAD_PROGRAM = Patch("torch.export", "load", EAGER_EXPORTS, takes=("f",))
UNFLATTEN = Patch("torch.export", "unflatten", EAGER_EXPORTS, takes=("module",))
PACKAGE = Patch(
    "torch._inductor",
    "aoti_compile_and_package",
    "no program of AOTInductor is seen",
    takes=("exported_program", "package_path", "inductor_configs"),
)
LOAD = Patch(
    "torch._inductor.package", "load_package", PACKAGE.purpose, takes=("path", "model_name")
)
PACKAGE_PARTS = Patch(
    "torch._inductor.package",
    "package_aoti",
    "no package of several programs is seen",
    takes=("archive_file", "aoti_files"),
)
AOT_COMPILE = Patch(
    "torch._inductor", "aot_compile", "no library of AOTInductor is seen", takes=("gm", "options")
)
AOT_LOAD = Patch("torch._export", "aot_load", AOT_COMPILE.purpose, takes=("so_path",))
PATCHES = (
    EXPORT, DRAFT_EXPORT, LOAD_PROGRAM, UNFLATTEN, PACKAGE, LOAD, PACKAGE_PARTS, AOT_COMPILE,
    AOT_LOAD,
)  # fmt: skip

ONLY_MODEL = "model"
"""The name of the only program of a package."""

EXTRA_FILES = "extra_files"
"""The name of the texts that a script saves together with a program."""

StandIn = Callable[[Any, Mapping[str, Any]], Callable[..., Any] | None]
"""Takes an exported program and its inductor settings. Returns what runs instead of its package,
or None if the program is to be compiled."""


class Unexported(ExportedProgram):
    """A module that replaces its exported program. It can be called, but has no graph."""

    def __init__(self, module: Any, args: Any, kwargs: Any) -> None:
        self.unexported = module
        self._example_inputs = (tuple(args), dict(kwargs or {}))

    def module(self, check_guards: bool = True) -> Any:
        """Return the module itself."""
        return self.unexported

    def run_decompositions(self, *_args: Any, **_kwargs: Any) -> Unexported:
        """Return this program: a module is not decomposed."""
        return self


@contextlib.contextmanager
def export_is_identity(log: EventLog) -> Iterator[None]:
    """Let programs that are exported in this block run as the modules that they were.

    Programs that were saved before are loaded as they are, with an event: an export recorded them.
    """
    modules = _Modules(log, SavedCode(log))
    with contextlib.ExitStack() as patches:
        patches.callback(modules.saved.remove)
        for patch, make in (
            (EXPORT, modules.exporting),
            (DRAFT_EXPORT, modules.exporting),
            (SAVE_PROGRAM, modules.saving),
            (LOAD_PROGRAM, modules.loading),
            (UNFLATTEN, modules.unflattening),
        ):
            patches.enter_context(patched(patch, make, log))
        yield


@dataclass(frozen=True)
class _Modules:
    """The modules that replace the exported programs of a process."""

    log: EventLog
    saved: SavedCode

    def exporting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `export`, or of `draft_export`."""

        def export(mod: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
            if not called_by_user(sys._getframe(1)):
                return original(mod, args, kwargs, **options)
            self.log.emit(ProgramExported(packaged=False))
            return Unexported(mod, args, kwargs)

        return export

    def saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `torch.export.save`."""

        def save(ep: Any, f: Any, **options: Any) -> None:
            if isinstance(ep, Unexported):
                extra = dict(options.get("extra_files") or {})
                self.saved.keep(f, {"": ep, EXTRA_FILES: lambda: extra})
            else:
                original(ep, f, **options)

        return save

    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `torch.export.load`."""

        def load(f: Any, **options: Any) -> Any:
            if (program := self.saved.kept(f)) is not None:
                if (extra := self.saved.kept(f, EXTRA_FILES)) and options.get("extra_files"):
                    options["extra_files"].update(extra())
                return program
            self.log.emit(ProgramTraced(str(LOAD_PROGRAM)))
            return original(f, **options)

        return load

    def unflattening(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `unflatten`, which restores the hierarchy of modules."""

        def unflatten(module: Any, *args: Any, **options: Any) -> Any:
            if isinstance(module, Unexported):
                return module.module()
            return original(module, *args, **options)

        return unflatten


class PackageInterception(Protocol):
    """Makes a replacement of each function that packages or loads programs, from the original."""

    def packaging(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def packaging_parts(self, original: Callable[..., Any]) -> Callable[..., Any]: ...
    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]: ...


@contextlib.contextmanager
def packages_intercepted(by: PackageInterception, log: EventLog) -> Iterator[None]:
    """Replace the functions that package or load programs with AOTInductor in this block."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(patched(PACKAGE, by.packaging, log))
        patches.enter_context(patched(AOT_COMPILE, by.compiling, log))
        patched_when_imported(patches, PACKAGE_PARTS, by.packaging_parts, log)
        for load in (LOAD, AOT_LOAD):
            patched_when_imported(patches, load, by.loading, log)
        yield


@contextlib.contextmanager
def packages_replaced(stand_in: StandIn, log: EventLog) -> Iterator[None]:
    """Run each program's `stand_in` in this block instead of the package that AOTInductor makes.

    A package that was made before cannot be replaced; loading one is an event.
    """
    with contextlib.ExitStack() as patches:
        patches.enter_context(aot_functions_replaced(log))
        packages = _Packages(stand_in, log, SavedCode(log))
        patches.callback(packages.saved.remove)
        patches.enter_context(packages_intercepted(packages, log))
        yield


def in_eager(program: Any, settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Return an exported program as a module, without compiling anything."""
    module: Callable[..., Any] = program.module()
    return module


def compiled_by(backend: Any) -> StandIn:
    """Return what compiles an exported program with a backend of torch.compile.

    With the backend `eager` the program is not even captured.
    """
    if backend == EAGER:
        return in_eager

    def stand_in(program: Any, settings: Mapping[str, Any]) -> Callable[..., Any]:
        options = jit_settings(settings) if backend == INDUCTOR else None
        compiled: Callable[..., Any] = torch.compile(
            program.module(), backend=backend, options=options or None
        )
        return compiled

    return stand_in


def jit_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a package that inductor also has under torch.compile."""
    return {name: v for name, v in settings.items() if not name.startswith("aot_inductor.")}


def dynamic_dimensions(program: Any) -> list[tuple[int, ...]]:
    """Return the dimensions with symbolic sizes of each input of an exported program.

    Empty for a module in place of a program, and if an input is not a tensor.
    """
    if isinstance(program, Unexported):
        return []
    names = set(program.graph_signature.user_inputs)
    values = [
        node.meta.get("val")
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in names
    ]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return []
    return [
        tuple(dim for dim, size in enumerate(value.shape) if isinstance(size, torch.SymInt))
        for value in values
    ]


def copied_arguments(
    args: Any, kwargs: Any, dynamic: Sequence[Sequence[int]]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return copies of the arguments of a program, with its symbolic sizes marked for Dynamo."""
    leaves = flatten([args, kwargs])
    copied = {id(v): v.detach().clone() for v in leaves if isinstance(v, torch.Tensor)}
    for value, dims in zip(leaves, dynamic, strict=False):
        for dim in dims:
            torch._dynamo.maybe_mark_dynamic(copied[id(value)], dim)
    same, named = copy.deepcopy((args, kwargs), copied)
    return same, named


@dataclass
class _Packages:
    """The packages of a process that were never compiled."""

    stand_in: StandIn
    log: EventLog
    saved: SavedCode

    def packaging(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aoti_compile_and_package`."""

        def package(exported_program: Any, *args: Any, **options: Any) -> Any:
            settings = options.get("inductor_configs") or {}
            call = self.stand_in(exported_program, settings)
            if call is None:
                return original(exported_program, *args, **options)
            file = options.get("package_path") or self.saved.new_file(".pt2")
            self._keep(file, call, ONLY_MODEL)
            return file

        return package

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `aot_compile`, which returns a library, or the files of one."""

        def aot_compile(gm: Any, args: Any, kwargs: Any = None, *, options: Any = None) -> Any:
            settings = options or {}
            if not called_by_user(sys._getframe(1)):
                return original(gm, args, kwargs, options=options)
            call = self.stand_in(Unexported(gm, args, kwargs), settings)
            if call is None:
                return original(gm, args, kwargs, options=options)
            file = self.saved.new_file(".so")
            self._keep(file, call)
            return [file] if settings.get("aot_inductor.package") else file

        return aot_compile

    def packaging_parts(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of `package_aoti`, which packages what `aot_compile` returned."""

        def package(archive_file: Any, aoti_files: Any) -> Any:
            models = models_of(aoti_files)
            calls = {name: kept_for_files(self.saved, files) for name, files in models.items()}
            if not all(calls.values()):
                return original(archive_file, aoti_files)
            self.saved.keep(archive_file, {name: call for name, call in calls.items() if call})
            return archive_file

        return package

    def _keep(self, file: Any, call: Callable[..., Any], name: str = "") -> None:
        self.log.emit(ProgramExported(packaged=True))
        self.saved.keep(file, {name: call})

    def loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Make the replacement of a function that loads compiled code from its first argument."""
        named = named_by_call(original)

        def load(*args: Any, **options: Any) -> Any:
            call = self.saved.find(*named(*args, **options))
            return original(*args, **options) if call is None else LoadedProgram(call)

        return load


@dataclass(frozen=True)
class LoadedProgram:
    """What a script loads from a package that was never compiled."""

    call: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the stand-in. A package records no gradients."""
        with torch.no_grad():
            return self.call(*args, **kwargs)

    def get_metadata(self) -> dict[str, str]:
        """Return no metadata: nothing was packaged."""
        return {}

    def get_constant_fqns(self) -> list[str]:
        """Return the names of the weights and buffers."""
        return [*self._constants()]

    def load_constants(
        self,
        constants_map: Mapping[str, torch.Tensor],
        *,
        check_full_update: bool,
        user_managed: bool = False,
    ) -> None:
        """Give weights and buffers new values."""
        constants = self._constants()
        if check_full_update and constants.keys() - constants_map.keys():
            raise RuntimeError("the constants of the package are not all given")
        with torch.no_grad():
            for name, value in constants_map.items():
                constants[name].copy_(value)

    def _constants(self) -> dict[str, torch.Tensor]:
        module: Any = getattr(self.call, "module", self.call)
        module = getattr(module, "_orig_mod", module)
        return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def kept_for_files(saved: SavedCode, files: Any) -> Callable[..., Any] | None:
    """Return what is kept for the library of these files, which `aot_compile` returned."""
    paths = files if isinstance(files, list | tuple) else [files]
    found = (saved.kept(path) for path in paths if isinstance(path, str | os.PathLike))
    return next(filter(None, found), None)


def named_by_call(load: Callable[..., Any]) -> Callable[..., tuple[Any, str]]:
    """Return what finds the file and the program's name in the arguments of a loading function."""
    signature = inspect.signature(load)
    first = next(iter(signature.parameters))

    def named(*args: Any, **options: Any) -> tuple[Any, str]:
        given = signature.bind(*args, **options)
        given.apply_defaults()
        return given.arguments[first], given.arguments.get("model_name", "")

    return named


def models_of(aoti_files: Any) -> Mapping[str, Any]:
    """Return the files of each program that a script packages, by the program's name."""
    return aoti_files if isinstance(aoti_files, Mapping) else {ONLY_MODEL: aoti_files}
