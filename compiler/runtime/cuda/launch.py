"""Loads kernels into device memory and makes a Python function for each, through a C launcher."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.runtime import prewarm
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import find

MISSING, NO_DRIVER, TOO_MANY_PROGRAMS = -1, -2, -3
VARIANTS = 8


class Variant(ctypes.Structure):
    """A compiled variant of a kernel. `function` is null if it is not loaded."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
    )


class KernelTable(ctypes.Structure):
    """The C struct of a kernel; see launcher.cpp."""

    _fields_ = (
        ("variants", Variant * VARIANTS),
        ("xblock", ctypes.c_int64),
        ("yblock", ctypes.c_int64),
        ("pointers", ctypes.c_int32),
        ("sizes", ctypes.c_int32),
        ("numbers", ctypes.c_int32),
        ("device", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Loaded:
    """A kernel in device memory. `registers` is per thread, `spilled` in bytes per thread."""

    function: int
    registers: int
    spilled: int


class Launcher:
    """The shared object that launches kernels. Raises KernelError if there is no driver."""

    def __init__(self, compiler: str, cache_dir: Path) -> None:
        self.open(Path(sysconfig.get_path("include")), compiler, cache_dir)
        if self._library.tcd_open():
            raise KernelError("there is no NVIDIA driver (libcuda.so.1)")

    def open(self, headers: Path, compiler: str, cache_dir: Path) -> None:
        """Build and load the shared object. This needs no driver; loading a kernel does."""
        text = source(headers)
        self._library = build(text, find(compiler).including(headers), cache_dir).library
        self._library.tcd_error.restype = ctypes.c_char_p
        self._bind: Callable[..., Any] | None = None
        if "tcd_bind" in text:
            bind = ctypes.PyDLL(self._library._name).tcd_bind
            bind.restype = ctypes.py_object
            self._bind = bind

    def load(self, cubin: bytes, name: str, shared: int, device: int) -> Loaded:
        """Load a kernel of a compiled module on a device. Raises KernelError."""
        function, registers, spilled = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        results = map(ctypes.byref, (function, registers, spilled))
        with torch.cuda.device(device):
            status = self._library.tcd_enter(device)
            status = status or self._library.tcd_load(cubin, name.encode(), shared, *results)
        if status:
            raise KernelError(f"{name} cannot be loaded: {self.error(status)}")
        return Loaded(function.value or 0, registers.value, spilled.value)

    def error(self, status: int) -> str:
        """Return the meaning of the status of a launch."""
        if status == TOO_MANY_PROGRAMS:
            return "more programs than a grid can have"
        text: bytes = self._library.tcd_error(status)
        return f"{text.decode()} ({status})"

    def function(self, table: KernelTable) -> Callable[..., int]:
        """(stream, wide, x, y, alone, *arguments) -> status. The table must outlive it."""
        if self._bind is None:
            return self._by_array(table)
        function: Callable[..., int] = self._bind(ctypes.byref(table))
        return function

    def _by_array(self, table: KernelTable) -> Callable[..., int]:
        """Return the same without Python's headers, which is about 3 us slower."""
        whole, numbers = table.pointers + table.sizes, table.numbers
        launch = self._library.tcd_launch
        launch.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4 + [ctypes.c_void_p]
        integers, floats = ctypes.c_int64 * (whole + numbers), ctypes.c_double

        def run(stream: int, wide: int, x: int, y: int, alone: int, *given: Any) -> int:
            values = integers(*given[:whole])
            for k in range(numbers):
                place = ctypes.addressof(values) + 8 * (whole + k)
                floats.from_address(place).value = given[whole + k]
            status: int = launch(ctypes.byref(table), stream, wide, x, y, alone, values)
            return status

        return run

    def variant(self, table: KernelTable, wide: int, given: tuple[int, ...]) -> int:
        """Return the variant of a kernel that a call needs."""
        whole = table.pointers + table.sizes
        values = (ctypes.c_int64 * max(1, whole))(*given[:whole])
        chosen: int = self._library.tcd_variant(ctypes.byref(table), ctypes.c_int64(wide), values)
        return chosen


def launcher_of(compiler: str, cache_dir: Path) -> Launcher:
    """Return the launcher of this process, shared by all kernels."""
    return prewarm.finished(Launcher, compiler, cache_dir)


def source(headers: Path) -> str:
    """Return the source of the launcher. With Python's headers it includes the binding."""
    folder = resources.files(__package__)
    text = (folder / "launcher.cpp").read_text()
    if not (headers / "Python.h").exists():
        return text
    return "\n".join([f'#include "{headers}/Python.h"', text, (folder / "binding.cpp").read_text()])
