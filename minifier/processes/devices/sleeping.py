"""Keeps CUDA uninitialised in a process whose forked children will use it.

A process cannot use CUDA if its parent initialised CUDA before the fork. torch initialises CUDA for
its own purposes, as Dynamo does before a capture, even in scripts that never use it. While CUDA
sleeps, `torch.cuda.is_available()` returns False to torch and the truth to the script. The call
with which the script initialises CUDA, or looks for Triton's driver, is announced. It may be inside
an operator that torch keeps from dispatch modes and from autograd, such as `torch.tensor(...,
device="cuda")`; `outside_of_call` undoes that.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from tcdebug.compiler import patching
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Installed, Patch, install
from tcdebug.minifier.processes.job import NVML

LAZY_INIT = Patch("torch.cuda", "_lazy_init", "candidates on a GPU run the whole script")
IS_AVAILABLE = Patch("torch.cuda", "is_available", "candidates on a GPU run the whole script")
GUARD = Patch(
    "torch._C", "_ensureCUDADeviceGuardSet", "fake tensors initialise CUDA to count devices"
)
PIN = Patch("torch:Tensor", "pin_memory", "candidates on a GPU run the whole script")
PATCHES = (LAZY_INIT, IS_AVAILABLE, GUARD, PIN)

CACHED = ("torch.utils._triton", "torch._inductor.utils")
"""Modules whose functions cache what the device can do."""
CACHE = type(functools.cache(print))
NOT_INITIALISED = 3
"""`CUDA_ERROR_NOT_INITIALIZED` of CUDA's driver interface."""
INSIDE = ("torch", "tcdebug")
TRITON = "triton"
ENTRANCES = ("torch.accelerator", patching.__name__)
"""Modules that query devices on behalf of their caller."""


class Sleeping:
    """CUDA is asleep in this process until `wake` is called.

    `waking` is called when the script is about to initialise CUDA. It may call `wake`. A process
    that has initialised CUDA already is awake.
    """

    def __init__(self, waking: Callable[[], None], log: EventLog) -> None:
        self._waking = waking
        self._installed: tuple[Installed, ...] = ()
        self._excluded = torch._C._dispatch_tls_local_exclude_set()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not annotated
            return
        os.environ[NVML] = "1"
        found = (
            install(LAZY_INIT, self._announced, log),
            install(IS_AVAILABLE, self._hidden_from_torch, log),
            install(GUARD, _nothing, log),
            install(PIN, self._announced, log),
        )
        self._installed = tuple(i for i in found if i is not None)

    def wake(self) -> None:
        """Let torch see the devices, and clear what it has cached while there were none.

        This initialises nothing yet. A second call does nothing.
        """
        for installed in self._installed:
            installed.undo()
        self._installed = ()
        os.environ.pop(NVML, None)
        _forget()

    @contextlib.contextmanager
    def outside_of_call(self) -> Iterator[None]:
        """Let torch dispatch in this block as at the beginning, not as inside the announced call.

        What the script has changed itself, such as autocast, stays.
        """
        excluded = torch._C._dispatch_tls_local_exclude_set()
        added = excluded - self._excluded
        included = torch._C._dispatch_tls_local_include_set()
        with torch._C._ForceDispatchKeyGuard(included, excluded - added):
            yield

    def _announced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Announce a call that initialises CUDA. Pinning memory does so without `_lazy_init`."""

        def initialising(*args: Any, **kwargs: Any) -> Any:
            if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not annotated
                self._waking()
            return original(*args, **kwargs)

        return initialising

    def _hidden_from_torch(self, original: Callable[[], bool]) -> Callable[[], bool]:
        """Hide the devices from torch. Announce Triton's search for a driver for the script.

        Triton asks before it loads the driver, and keeps the driver that it finds.
        """

        def is_available() -> bool:
            asking = _asking(sys._getframe(1))
            if asking[-1:] and asking[-1] in INSIDE:
                return False
            if TRITON in asking and original():
                self._waking()
            return original()

        return is_available


def driver_is_initialised() -> bool:
    """Return whether this process has initialised CUDA's driver, also without torch's knowledge.

    Tensors that are created in pinned memory do so.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    status: int = driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))
    return status != NOT_INITIALISED


def _nothing(original: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


def _asking(frame: FrameType | None) -> tuple[str, ...]:
    """Return the packages that ask for devices: one, or Triton and the one that called it."""
    asking: list[str] = []
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        package = name.partition(".")[0]
        if package != TRITON and name not in ENTRANCES:
            return (*asking, package)
        if package == TRITON and not asking:
            asking.append(package)
        frame = frame.f_back
    return tuple(asking)


def _forget() -> None:
    """Clear the caches of torch's functions that query devices."""
    for module in [sys.modules[name] for name in CACHED if name in sys.modules]:
        for value in list(vars(module).values()):
            if isinstance(value, CACHE):
                value.cache_clear()
