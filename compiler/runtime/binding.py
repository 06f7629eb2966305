"""Makes Python functions of the kernels in shared objects. They take tensors, sizes and numbers.

If Python's headers are installed, calls use a C extension; otherwise ctypes, which takes 1 us
longer per kernel.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import Toolchain


class _KernelStruct(ctypes.Structure):
    """The C struct of a kernel of a launch; see binding.cpp."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.c_int32),
        ("first", ctypes.c_int32),
    )


class _LaunchStruct(ctypes.Structure):
    """The C struct of a launch; see binding.cpp."""

    _fields_ = (
        ("kinds", ctypes.c_char_p),
        ("steps", ctypes.POINTER(_KernelStruct)),
        ("places", ctypes.POINTER(ctypes.c_int32)),
        ("arguments", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("most", ctypes.c_int32),
    )


class Binding:
    """Makes Python functions of kernels. `headers` is the folder of Python.h."""

    def __init__(self, toolchain: Toolchain, cache_dir: Path, headers: Path | None = None) -> None:
        folder = headers or Path(sysconfig.get_path("include"))
        self._bind: Callable[..., Any] | None = None
        if (folder / "Python.h").exists():
            text = (resources.files(__package__) / "binding.cpp").read_text()
            source = f'#include "{folder}/Python.h"\n{text}'
            built = build(source, toolchain.catching().including(folder), cache_dir)
            # loaded by path, because calls through the handle of a ctypes.CDLL release the GIL
            library = ctypes.PyDLL(built.library._name)
            library.tcd_start.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
            library.tcd_start(seams.address_of_tensor, torch.Tensor, torch.nn.Parameter)
            library.tcd_bind.restype = ctypes.py_object
            self._bind = library.tcd_bind

    def function(self, library: ctypes.CDLL, launch: Launch) -> Callable[..., int]:
        """Return a function that runs the kernels of a launch. The library must never be unloaded.

        It returns 0, or the status of the first kernel that failed; see `raise_status`.
        """
        if self._bind is None:
            return by_types(library, launch)
        places = [place for taken in launch.places for place in taken]
        steps = (_KernelStruct * len(launch.kernels))()
        first = 0
        for step, name, taken in zip(steps, launch.kernels, launch.places, strict=True):
            address = ctypes.cast(library[f"{name}_packed"], ctypes.c_void_p).value
            step.function, step.arguments, step.first = address, len(taken), first
            first += len(taken)
        table = _LaunchStruct(
            launch.kinds.encode(),
            steps,
            (ctypes.c_int32 * len(places))(*places),
            len(launch.kinds),
            len(steps),
            max(map(len, launch.places)),
        )
        function: Callable[..., int] = self._bind(ctypes.byref(table), len(places))
        return function


@lru_cache(maxsize=4)
def binding_of(toolchain: Toolchain, cache_dir: Path) -> Binding:
    """Return the binding of this process, shared by all graphs."""
    return Binding(toolchain, cache_dir)


def by_types(library: ctypes.CDLL, launch: Launch) -> Callable[..., int]:
    """Return a function that runs the kernels of a launch through ctypes."""
    types: dict[str, Any] = {"t": ctypes.c_void_p, "i": ctypes.c_int64, "n": ctypes.c_double}
    steps: list[tuple[Any, Sequence[int]]] = []
    for name, places in zip(launch.kernels, launch.places, strict=True):
        function = library[name]
        function.argtypes = [types[launch.kinds[p]] for p in places]
        function.restype = ctypes.c_int
        steps.append((function, places))
    tensors = [k for k, kind in enumerate(launch.kinds) if kind == "t"]

    def run(*given: Any) -> int:
        if len(given) != len(launch.kinds):
            raise TypeError(f"kernels take {len(launch.kinds)} arguments, not {len(given)}")
        values = list(given)
        for place in tensors:
            values[place] = values[place].data_ptr()
        for position, (function, places) in enumerate(steps):
            if status := function(*(values[p] for p in places)):
                return position << 8 | status & 255 if len(steps) > 1 else int(status)
        return 0

    return run
