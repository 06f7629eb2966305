"""Runs a user's script in this process as python would run it."""

from __future__ import annotations

import builtins
import contextlib
import multiprocessing
import os
import runpy
import sys
import threading
import traceback
import weakref
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.processes.job import FAULT, INVALID_BACKEND, NO_BACKEND, SCRIPT_FAILED

REGISTER = Patch("atexit", "register", "what a script does at its exit is not done")
UNREGISTER = Patch("atexit", "unregister", "what a script no longer does at its exit is done")
PATCHES = (REGISTER, UNREGISTER)


class NoBackend(BaseException):
    """The backend does not exist. Leaves the script, past any handler of Exception."""


class Finished(BaseException):
    """The report is written. Leaves the script, past any handler of Exception."""


class Broken(BaseException):
    """tcdebug itself failed. The traceback has been printed."""


class AtExit:
    """The functions that a script and what it imports have registered for the exit.

    They are those of `atexit`, and finalizers, such as that of a temporary folder.
    """

    def __init__(self) -> None:
        self._registered: list[tuple[Callable[..., object], partial[object]]] = []
        self._earlier = frozenset(_finalizers())

    @contextlib.contextmanager
    def registering(self) -> Iterator[None]:
        """Take what is registered in this block."""
        log = EventLog(None)
        with patched(REGISTER, self._takes, log), patched(UNREGISTER, self._drops, log):
            yield

    def call(self) -> None:
        """Call them in the order of python, the last one first, with a traceback for each error."""
        while self._registered:
            _, call = self._registered.pop()
            _call(call)
        left = [f for f in _finalizers() if f not in self._earlier]
        for finalizer in reversed(left):
            if finalizer.alive and finalizer.atexit:
                _call(finalizer)

    def _takes(self, original: object) -> Callable[..., object]:
        def register(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
            self._registered.append((function, partial(function, *args, **kwargs)))
            return function

        return register

    def _drops(self, original: Callable[[Callable[..., object]], None]) -> Callable[..., None]:
        def unregister(function: Callable[..., object], /) -> None:
            self._registered = [(f, c) for f, c in self._registered if f != function]
            original(function)

        return unregister


def _finalizers() -> list[weakref.finalize[..., Any]]:
    """Return the finalizers of this process whose objects are alive, in the order of creation."""
    return list(weakref.finalize._registry)  # type: ignore[attr-defined]  # nothing else lists them


def _call(function: Callable[[], object]) -> None:
    try:
        function()
    except BaseException:
        _print_traceback()


def run_script(script: str, args: list[str]) -> int:
    """Run a script as python would. Return the exit status that python would return.

    Like python, wait at its end for the threads and processes that it has started, except daemons,
    and call the functions that were registered with `atexit` meanwhile: a process of a session ends
    without them.
    """
    path = Path(script)
    sys.argv = [script, *args]
    sys.path[0] = str(path.resolve().parent)
    at_exit = AtExit()
    with at_exit.registering():
        status = _ending(script)
        if status is not None:
            threading._shutdown()  # type: ignore[attr-defined]  # what python calls at its end
        at_exit.call()
    if status is None:
        return 0
    for child in multiprocessing.active_children():
        if not child.daemon:
            child.join()
    return status


def _ending(script: str) -> int | None:
    """Run a script, and return its exit status; None if the report is written."""
    try:
        _run(script)
    except SystemExit as error:
        return _status(error.code)
    except Finished:
        return None
    except Broken:
        return FAULT
    except KeyboardInterrupt:
        return 130
    except NoBackend:
        return NO_BACKEND
    except BaseException as error:
        _print_traceback()
        return NO_BACKEND if type(error).__name__ == INVALID_BACKEND else SCRIPT_FAILED
    return 0


def _run(script: str) -> None:
    """Run a script as `__main__`. Like python, give it its absolute path, and argv as it is."""
    path = os.path.abspath(script)
    if not os.path.isfile(path) or path.endswith(".pyc") or zipfile.is_zipfile(path):
        runpy.run_path(script, run_name="__main__")
        return
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    names = {"__file__": path, "__cached__": None, "__loader__": loader, "__builtins__": builtins}
    main.__dict__.update(names)
    code = loader.source_to_code(loader.get_data(path), path)
    ours, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        exec(code, main.__dict__)
    finally:
        sys.modules["__main__"] = ours


def leave(status: int) -> NoReturn:
    """Flush the output and end this process at once. Nothing can catch this."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)  # noqa: T201 - what sys.exit("text") does
    return 1


def _print_traceback() -> None:
    """Print the traceback of the script without the frames of tcdebug and runpy.

    If the script has replaced stderr, it is printed to the original one too, which is read later.
    """
    kind, error, trace = sys.exc_info()
    while trace is not None and _ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    for file in dict.fromkeys((sys.stderr, sys.__stderr__)):
        traceback.print_exception(kind, error, trace, file=file)


def _ours(filename: str) -> bool:
    return filename == __file__ or "runpy" in filename
