"""Kernels of a shared object as Python functions of addresses, sizes and numbers.

With Python's headers at hand a call goes through a C function of Python's; without, by ctypes,
which takes 1 us longer for each kernel.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from tcdebug.compiler.codegen.call import KernelCall
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import Toolchain


class KernelTable(ctypes.Structure):
    """What the C side knows of a kernel."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_int32),
        ("first_number", ctypes.c_int32),
        ("numbers", ctypes.c_int32),
    )


class Binding:
    """Makes Python functions of kernels; `headers` is the folder of Python.h."""

    def __init__(self, toolchain: Toolchain, cache_dir: Path, headers: Path | None = None) -> None:
        folder = headers or Path(sysconfig.get_path("include"))
        self._bind: Callable[..., Any] | None = None
        if (folder / "Python.h").exists():
            text = (resources.files(__package__) / "packed.cpp").read_text()
            built = build(f'#include "{folder}/Python.h"\n{text}', toolchain, cache_dir)
            # the path says which library it is: a handle of ctypes.CDLL would release the GIL
            bind = ctypes.PyDLL(built.library._name).tcd_bind
            bind.restype = ctypes.py_object
            self._bind = bind

    def function(self, library: ctypes.CDLL, call: KernelCall) -> Callable[..., int]:
        """A kernel of a library that lives as long as the process, as all of them do."""
        if self._bind is None:
            return by_types(library, call)
        whole, numbers = len(call.loads) + len(call.stores) + len(call.symbols), call.parameters
        table = KernelTable(
            ctypes.cast(library[f"{call.kernel.name}_packed"], ctypes.c_void_p).value,
            whole + len(numbers) + len(call.after),
            whole,
            len(numbers),
        )
        function: Callable[..., int] = self._bind(ctypes.byref(table))
        return function


@lru_cache(maxsize=4)
def binding_of(toolchain: Toolchain, cache_dir: Path) -> Binding:
    """The binding of a process: one for all of its graphs."""
    return Binding(toolchain, cache_dir)


def by_types(library: ctypes.CDLL, call: KernelCall) -> Callable[..., int]:
    """A kernel by ctypes."""
    function = library[call.kernel.name]
    function.argtypes = [
        *[ctypes.c_void_p] * (len(call.loads) + len(call.stores)),
        *[ctypes.c_int64] * len(call.symbols),
        *[ctypes.c_double] * len(call.parameters),
        ctypes.c_int,
    ]
    function.restype = ctypes.c_int
    return function
