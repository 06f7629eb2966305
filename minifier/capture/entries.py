"""Replaces the graphs that a script gives directly to inductor, without torch.compile.

What the script gets instead of compiled code is captured again when it is called. Its layers can
therefore be switched off, and its graphs judged, like those of any other script. Calls from within
torch are left alone.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.capture.cache_bundles import SAVE, saving_something
from tcdebug.minifier.capture.saved_code import (
    SavableStandIn,
    SavedCode,
    patched_when_imported,
    saved_graph,
)
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.targets.backends import Backend, has_text
from tcdebug.minifier.targets.interception import COMPILE_FX

LOST = "no graph is seen that a script gives to this function"


@dataclass(frozen=True)
class Entry:
    """A function of inductor that compiles a graph for example inputs: its first two parameters."""

    backend: str
    """The name of the entry as a backend; see `targets.entries`."""
    patch: Patch
    settings: str
    """The parameter with inductor's settings, or with a dictionary that contains them."""
    ignored: tuple[str, ...] = ()
    """Parameters that mean nothing for a graph that Dynamo captured."""


ENTRIES = (
    Entry(
        "compile_fx",
        COMPILE_FX,
        "config_patches",
        ("ignore_shape_env",),
    ),
    Entry(
        "inductor_compile",
        Patch("torch._inductor", "compile", LOST, takes=("options",)),
        "options",
    ),
    Entry(
        "standalone_compile",
        Patch("torch._inductor", "standalone_compile", LOST, takes=("options",)),
        "options",
        ("dynamic_shapes", "donate_graph_module", "fake_mode"),
    ),
)
LOAD_ARTIFACT = Patch(
    "torch._inductor.standalone_compile:CompiledArtifact",
    "load",
    "a saved artifact that was never compiled cannot be loaded",
    takes=("path",),
)
SAVE_ARTIFACT = Patch(
    "torch._inductor.standalone_compile:CacheCompiledArtifact",
    "save",
    "a backend that saves its artifacts cannot be searched, since candidates use no cache",
    takes=("path", "format"),
)
PATCHES = (
    *(entry.patch for entry in ENTRIES if entry.patch is not COMPILE_FX),
    LOAD_ARTIFACT,
    SAVE_ARTIFACT,
)


@dataclass(frozen=True)
class EntryCall:
    """A call of an entry: what it compiles and how.

    `settings` are None if a repro cannot state the arguments; `again` then compiles a graph with
    the arguments that the script gave.
    """

    backend: str
    module: Any
    settings: Mapping[str, Any] | None
    again: Callable[[Any, Any], Any] = field(compare=False)
    inputs: Sequence[Any] = ()
    """The example inputs of the call."""

    def described(self, run_dir: str) -> Backend:
        """Return the entry as a backend of torch.compile."""
        if self.settings is None:
            return Backend(self.again, self.backend, run_dir=run_dir)
        return Backend(self.backend, self.backend, options=self.settings, run_dir=run_dir)


EntryStandIn = Callable[[EntryCall], Callable[..., Any] | None]
"""Returns what runs instead of the compiled graph, or None if it is to be compiled."""


@contextlib.contextmanager
def entries_replaced(
    stand_in: EntryStandIn, log: EventLog, *, called_when_saved: bool = False
) -> Iterator[None]:
    """Run the `stand_in` of each graph that the script gives to inductor in this block.

    With `called_when_saved`, that of a graph is called with its example inputs when it is saved.
    """
    with contextlib.ExitStack() as patches:
        saved = SavedCode(log)
        patches.callback(saved.remove)
        patches.enter_context(_entered(stand_in, saved, log, called_when_saved))
        _kept_in_process(saved, patches, log)
        yield


@contextlib.contextmanager
def artifacts_savable(log: EventLog) -> Iterator[None]:
    """Let artifacts be saved, and loaded in this process, while caches of graphs are off."""
    with contextlib.ExitStack() as patches:
        saved = SavedCode(log)
        patches.callback(saved.remove)
        _kept_in_process(saved, patches, log)
        yield


def _kept_in_process(saved: SavedCode, patches: contextlib.ExitStack, log: EventLog) -> None:
    """Keep what cannot be written: stand-ins, and artifacts of a compile without caches."""
    patches.enter_context(patched(SAVE, saving_something, log))
    patched_when_imported(patches, LOAD_ARTIFACT, partial(_loading, saved), log)
    patched_when_imported(patches, SAVE_ARTIFACT, partial(_saving, saved), log)


@contextlib.contextmanager
def entries_wrapped(wrap: EntryStandIn, log: EventLog) -> Iterator[None]:
    """Let `wrap` compile each graph in this block. What it returns can be saved as the code can."""
    with _entered(wrap, None, log, called_when_saved=False):
        yield


@contextlib.contextmanager
def _entered(
    stand_in: EntryStandIn, saved: SavedCode | None, log: EventLog, called_when_saved: bool
) -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        for entry in ENTRIES:
            make = partial(_replacement, entry, stand_in, saved, called_when_saved)
            patched_when_imported(patches, entry.patch, make, log)
        yield


def as_it_is(call: EntryCall) -> Callable[..., Any]:
    """Return a graph as a function, without compiling it."""
    return StandInArtifact(call.module)


def entry_compiled_by(backend: Any) -> EntryStandIn:
    """Return what compiles graphs with a backend of torch.compile instead."""
    return lambda call: StandInArtifact(torch.compile(call.module, backend=backend))


@dataclass(frozen=True)
class StandInArtifact:
    """What a script gets instead of compiled code."""

    call: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Call the stand-in. Compiled code also takes its arguments as one list."""
        if len(args) == 1 and isinstance(args[0], list):
            args = tuple(args[0])
        return self.call(*args)


def _replacement(
    entry: Entry,
    stand_in: EntryStandIn,
    saved: SavedCode | None,
    called_when_saved: bool,
    original: Callable[..., Any],
) -> Callable[..., Any]:
    signature = inspect.signature(original)
    graph, examples, *_ = signature.parameters

    def enter(*args: Any, **kwargs: Any) -> Any:
        if not called_by_user(sys._getframe(1)):
            return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        module = given.pop(graph)
        inputs = given.pop(examples)

        def again(module: Any, inputs: Any) -> Any:
            return original(module, inputs, **given)

        call = stand_in(EntryCall(entry.backend, module, _settings(entry, given), again, inputs))
        if call is None:
            return original(*args, **kwargs)
        if saved is None or entry.backend != "standalone_compile":
            return call
        return SavableStandIn(call, saved, module, tuple(inputs) if called_when_saved else ())

    return enter


def _loading(saved: SavedCode, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the replacement of `CompiledArtifact.load`."""

    def load(*, path: str, **options: Any) -> Any:
        call = saved.kept(path)
        if call is None and (module := saved_graph(path)) is not None:
            return StandInArtifact(module)
        call = call or saved.find(path)
        return original(path=path, **options) if call is None else call

    return load


def _saving(saved: SavedCode, original: Callable[..., Any]) -> Callable[..., Any]:
    """Make the replacement of an artifact's method `save`, which needs inductor's caches."""

    def save(artifact: Any, *, path: str, format: str = "binary") -> Any:
        if artifact._artifacts is not None and artifact._artifacts[1].aot_autograd_artifacts:
            return original(artifact, path=path, format=format)
        return saved.remember(path, artifact)

    return save


def _settings(entry: Entry, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the settings of a call; None if it has other arguments, or values without a text."""
    others = [name for name in given if name not in (entry.settings, *entry.ignored)]
    settings = dict(given.get(entry.settings) or {})
    if entry.backend == "standalone_compile":
        nested = settings.pop("config_patches", None) or {}
        others += settings
        settings = dict(nested)
    return None if others or not all(map(has_text, settings.values())) else settings
