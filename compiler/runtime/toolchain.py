"""Finds the C++ compiler and defines the flags with which kernels are compiled."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from tcdebug.compiler.errors.exceptions import Coded

VECTOR_MATH_GLIBC = (2, 35)
"""The first glibc whose libmvec has vector versions of all functions that the prelude declares."""

FLAGS = (
    "-x", "c++", "-std=c++17", "-O3", "-fopenmp", "-fPIC", "-shared", "-w",
    "-fno-exceptions", "-fno-rtti",
    # eager's arithmetic: no contraction, no assumption about NaN, inf or signed zero; integers wrap
    "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing",
    # neither errno nor floating point exceptions are used
    "-fno-math-errno", "-fno-trapping-math",
    # sin and cos of one number would become a call that has no vector version
    "-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf",
    # a bug of gcc 12: vectorized loops load zeros if several values depend on one comparison of the
    # index, as in `cat`, and gcc knows the range of the index
    "-fno-tree-vrp",
    # g++ copies the code after a choice of a constant, once for each side, or computes a function
    # of the constant in advance; the function of the other side is then called in a branch, for
    # which libmvec has no vector version
    "-fno-thread-jumps", "-fno-tree-pre",
)  # fmt: skip

WIDE_VECTORS = "-mprefer-vector-width=512"
"""g++ uses half of the vector registers of some processors with AVX-512 unless it is told."""

KNOWN = "-mtune=icelake-server"
"""A processor with AVX-512 that g++ knows since version 8."""


class NoCompiler(Coded, RuntimeError):
    """There is no usable C++ compiler. The message says what to install."""

    code = "TCD103"


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler, and everything that its output depends on."""

    path: str
    version: str
    target: str
    """The model and features of the CPU that code is generated for."""
    vector_math: bool
    tuning: tuple[str, ...] = ()
    """The flag that names a processor like this one, if the compiler does not know this one."""
    extra: tuple[str, ...] = ()
    """Flags after all others."""

    def catching(self) -> Toolchain:
        """This toolchain for code that catches C++ exceptions."""
        return replace(self, extra=(*self.extra, "-fexceptions"))

    def including(self, folder: Path) -> Toolchain:
        """This toolchain with a folder of headers."""
        return replace(self, extra=(*self.extra, f"-I{folder}"))

    def command(self, source: Path, output: Path) -> list[str]:
        """Return the command line that builds a shared object from a source file."""
        return [*self._compiling(), str(source), "-o", str(output), *self._libraries()]

    def object_command(self, source: Path, output: Path) -> list[str]:
        """Return the command line that compiles a source file, without linking it."""
        return [*self._compiling(), "-c", str(source), "-o", str(output)]

    def link_command(self, objects: Sequence[Path], output: Path) -> list[str]:
        """Return the command line that links compiled files to a shared object."""
        names = (str(o) for o in objects)
        return [self.path, "-shared", "-fPIC", *names, "-o", str(output), *self._libraries()]

    def _compiling(self) -> list[str]:
        math = ["-DTCD_VECTOR_MATH"] if self.vector_math else []
        return [self.path, *FLAGS, *_machine_flags(), *self.tuning, *math, *self.extra]

    def _libraries(self) -> tuple[str, ...]:
        """Return the libraries to link.

        Without C++'s, which kernels do not use, builds are 20% faster.
        """
        if not self.vector_math:
            return ("-lm",)
        if self.extra:
            return ("-lmvec", "-lm")
        return ("-nodefaultlibs", "-lmvec", "-lm", "-lgomp", "-lgcc", "-lc")

    def key(self, source: str) -> str:
        """Return the content address of the shared object of a source."""
        parts = (self.version, self.target, str(self.vector_math), *FLAGS, *_machine_flags())
        parts = (*parts, *self.tuning, *self.extra, source)
        return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _machine_flags() -> tuple[str, ...]:
    """Return the flags that depend on the architecture."""
    if platform.machine() == "aarch64":
        return ("-mcpu=native",)
    if platform.machine() == "x86_64":
        return ("-march=native", WIDE_VECTORS)
    return ("-march=native",)


@lru_cache(maxsize=4)
def find(compiler: str) -> Toolchain:
    """Return the toolchain of a compiler, given by name or path. Raises NoCompiler."""
    path = shutil.which(compiler)
    if path is None:
        raise NoCompiler(
            f"no C++ compiler {compiler!r} on PATH: install g++, or set TCDEBUG_CXX, "
            "or switch all lowerings off to run without kernels (TCDEBUG_OFF=lower)"
        )
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompiler(f"{path} --version failed: {error}") from error
    version = answer.stdout.splitlines()[0] if answer.stdout else path
    is_gcc = "clang" not in answer.stdout.lower()
    tuning = _tuning(path) if is_gcc else ()
    return Toolchain(path, version, _cpu(), is_gcc and _has_vector_math(), tuning)


def _tuning(path: str) -> tuple[str, ...]:
    """Return the flag that makes g++ assume the costs of a similar processor.

    g++ assumes those of no particular processor if this one is newer than itself. It then reads
    through indices one element at a time, which took 4 to 6 times as long on such a processor.
    """
    cpu = _cpu()
    if "GenuineIntel" not in cpu or "avx512vl" not in cpu:
        return ()
    asked = [path, "-march=native", "-Q", "--help=target"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    return (KNOWN,) if re.search(r"-mtune=\s+generic\b", answer.stdout) else ()


def _has_vector_math() -> bool:
    if platform.machine() != "x86_64":
        return False
    try:
        name, _, number = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return False
    parts = tuple(int(p) for p in number.split(".")[:2] if p.isdecimal())
    return name == "glibc" and parts >= VECTOR_MATH_GLIBC


@lru_cache(maxsize=1)
def _cpu() -> str:
    """Return a text that determines what -march=native means."""
    wanted = ("vendor_id", "cpu family", "model\t", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    first = lines[: lines.index("")] if "" in lines else lines
    return platform.machine() + "".join(line for line in first if line.startswith(wanted))
