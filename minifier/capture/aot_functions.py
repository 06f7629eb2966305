"""Functions that a script compiles ahead of time with torch.compile, saves and loads.

`torch.compile(f).aot_compile(inputs)` needs a backend whose code can be saved. What replaces a
backend in a search cannot be saved, so the function is then compiled when it is called.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.capture.saved_code import SavedCode, patched_when_imported

COMPILE = Patch(
    "torch._dynamo.aot_compile",
    "aot_compile_fullgraph",
    "a function that a script compiles ahead of time is searched only as a part of the script",
    takes=("model", "example_inputs", "hooks", "backend"),
)
LOAD = Patch(
    "torch.compiler",
    "load_compiled_function",
    "code that was compiled before is not noticed",
    takes=("file",),
)
PATCHES = (COMPILE, LOAD)
WRAPPED = "its code could not be saved with a wrapper around the backend"
OURS = "tcdebug.minifier."
STAND_INS = f"{OURS}capture."
"""The package of the backends that replace a script's and whose code cannot be saved."""


@contextlib.contextmanager
def aot_functions_replaced(log: EventLog, *, all_backends: bool = False) -> Iterator[None]:
    """Let functions that are compiled ahead of time in this block be compiled when called.

    That concerns those with a stand-in as their backend, or all, because code cannot be saved while
    caches of graphs are off. What they save can be loaded.
    """
    saved = SavedCode(log)

    def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def compile_function(*args: Any, **options: Any) -> Any:
            given = signature.bind(*args, **options).arguments
            if not (all_backends or _is_stand_in(given["backend"])):
                return original(*args, **options)
            model = given["model"]
            compiled = torch.compile(
                getattr(model, "__func__", model),
                backend=given["backend"],
                fullgraph=True,
                dynamic=given.get("dynamic"),
            )
            return StandInFunction(compiled, saved, getattr(model, "__self__", None))

        return compile_function

    def loading(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(file: Any, **options: Any) -> Any:
            call = saved.find(file)
            return original(file, **options) if call is None else call

        return load

    with contextlib.ExitStack() as patches:
        patches.callback(saved.remove)
        patched_when_imported(patches, COMPILE, compiling, log)
        patched_when_imported(patches, LOAD, loading, log)
        yield


@contextlib.contextmanager
def aot_functions_unwatched(log: EventLog) -> Iterator[None]:
    """Compile functions ahead of time in this block with the backend itself.

    A wrapper around a backend, which watches its graphs, has no code that can be saved.
    """

    def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def compile_function(*args: Any, **options: Any) -> Any:
            given = signature.bind(*args, **options).arguments
            backend = given["backend"]
            if _module(backend).startswith(OURS) and hasattr(backend, "original"):
                log.emit(Fallback("a function compiled ahead of time is not watched", WRAPPED))
                given["backend"] = torch._dynamo.lookup_backend(backend.original)
            return original(**given)

        return compile_function

    with contextlib.ExitStack() as patches:
        patched_when_imported(patches, COMPILE, compiling, log)
        yield


@dataclass(frozen=True)
class StandInFunction:
    """What a script gets instead of a function that was compiled ahead of time."""

    call: Callable[..., Any]
    saved: SavedCode
    owner: Any = None
    """The object of a method, which `call` takes first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the stand-in. The code of most methods takes the object as its first argument."""
        given = args and isinstance(args[0], type(self.owner))
        if self.owner is not None and not given:
            args = (self.owner, *args)
        return self.call(*args, **kwargs)

    def save_compiled_function(self, path: str, external_data: Any = None) -> None:
        """Let `torch.compiler.load_compiled_function` return this stand-in."""
        self.saved.keep(path, {"": self})


def _is_stand_in(backend: Any) -> bool:
    return _module(backend).startswith(STAND_INS)


def _module(backend: Any) -> str:
    """Return the name of the module that defines a backend."""
    named = backend if hasattr(backend, "__name__") else type(backend)
    return str(getattr(named, "__module__", ""))
