"""The C side of a launch: kernels in device memory, and a Python callable for each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tcdebug.compiler.errors import KernelError
from tcdebug.compiler.options import Options
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import find

MISSING, NO_DRIVER, TOO_MANY_PROGRAMS = -1, -2, -3
VARIANTS = 8
DIRECT = 48
"""Arguments that have a place of their own in the C function; more go by way of an array."""


class Variant(ctypes.Structure):
    """One compiled version of a kernel; no function where there is none yet."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
    )


class KernelTable(ctypes.Structure):
    """What the C side knows of a kernel."""

    _fields_ = (
        ("variants", Variant * VARIANTS),
        ("xblock", ctypes.c_int64),
        ("yblock", ctypes.c_int64),
        ("pointers", ctypes.c_int32),
        ("sizes", ctypes.c_int32),
        ("numbers", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Loaded:
    """A kernel in device memory. `spilled` is in bytes a thread."""

    function: int
    registers: int
    spilled: int


class Launcher:
    """The shared object that launches kernels. Raises KernelError where there is no driver."""

    def __init__(self, options: Options) -> None:
        self._library = build(_source(), find(options.compiler), options.cache_dir).library
        self._library.tcd_error.restype = ctypes.c_char_p
        status = self._library.tcd_open()
        if status:
            raise KernelError("there is no NVIDIA driver (libcuda.so.1) to load kernels with")

    def load(self, cubin: bytes, name: str, shared: int) -> Loaded:
        """A kernel of a compiled module, in the context that is current. Raises KernelError."""
        function, registers, spilled = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        status = self._library.tcd_load(
            cubin, name.encode(), shared, *map(ctypes.byref, (function, registers, spilled))
        )
        if status:
            raise KernelError(f"{name} cannot be loaded: {self.error(status)}")
        return Loaded(function.value or 0, registers.value, spilled.value)

    def error(self, status: int) -> str:
        """What a status of a launch means."""
        if status == TOO_MANY_PROGRAMS:
            return "more programs than a grid can have"
        text: bytes = self._library.tcd_error(status)
        return f"{text.decode()} ({status})"

    def function(self, table: KernelTable) -> Callable[..., int]:
        """(stream, wide, x, y, alone, *arguments) -> status."""
        pointer = ctypes.pointer(table)
        whole, numbers = table.pointers + table.sizes, table.numbers
        if numbers or whole > DIRECT:
            return self._by_array(pointer, whole, numbers)
        direct = self._library[f"tcd_launch_{whole}"]
        direct.restype = ctypes.c_int
        bound = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_int64] * (5 + whole))(
            ctypes.cast(direct, ctypes.c_void_p).value or 0
        )
        address = ctypes.addressof(table)

        def launch(*given: int) -> int:
            status: int = bound(address, *given)
            return status

        return launch

    def _by_array(self, table: Any, whole: int, numbers: int) -> Callable[..., int]:
        launch = self._library.tcd_launch
        launch.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4 + [ctypes.c_void_p]
        integers, floats = ctypes.c_int64 * (whole + numbers), ctypes.c_double

        def run(stream: int, wide: int, x: int, y: int, alone: int, *given: Any) -> int:
            values = integers(*given[:whole])
            for k in range(numbers):
                place = ctypes.addressof(values) + 8 * (whole + k)
                floats.from_address(place).value = given[whole + k]
            status: int = launch(table, stream, wide, x, y, alone, values)
            return status

        return run

    def variant(self, table: KernelTable, wide: int, given: tuple[int, ...]) -> int:
        """Which version of a kernel a call needs."""
        whole = table.pointers + table.sizes
        values = (ctypes.c_int64 * max(1, whole))(*given[:whole])
        chosen: int = self._library.tcd_variant(ctypes.byref(table), ctypes.c_int64(wide), values)
        return chosen


def _source() -> str:
    """The launcher with a function for each number of arguments."""
    text = (resources.files(__package__) / "launcher.cpp").read_text()
    direct: list[str] = []
    for count in range(1, DIRECT + 1):
        given = ", ".join(f"int64_t a{k}" for k in range(count))
        values = ", ".join(f"a{k}" for k in range(count))
        direct.append(
            f'extern "C" int tcd_launch_{count}(const Kernel* kernel, void* stream, int64_t wide, '
            f"int64_t x, int64_t y, int64_t alone, {given}) {{\n"
            f"  int64_t given[] = {{{values}}};\n"
            "  return tcd_launch(kernel, stream, wide, x, y, alone, given);\n}"
        )
    return "\n".join([text, *direct])
