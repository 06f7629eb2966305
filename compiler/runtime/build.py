"""Builds and loads shared objects from C++, with a content-addressed cache shared by processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tcdebug.compiler.errors.exceptions import Coded
from tcdebug.compiler.runtime.cache_eviction import keep_within
from tcdebug.compiler.runtime.toolchain import Toolchain

TIMEOUT = 600
"""Seconds that a C++ compile may take, and that a process waits for another one's build."""

LARGEST = 4 << 30
"""The most bytes of shared objects and their sources in the cache."""


class BuildError(Coded, RuntimeError):
    """The C++ compiler rejected a source, crashed or timed out."""

    code = "TCD104"


CRASH = "internal compiler error"
"""What g++ writes if it fails by itself."""
WITHOUT_VECTORS = ("-fno-tree-loop-vectorize", "-fno-tree-slp-vectorize")
"""What a compiler that crashes is called with again."""


@dataclass(frozen=True)
class Compiled:
    """How a translation unit was compiled."""

    seconds: float
    crash: str = ""
    """What a crashing compiler wrote. It has then compiled the unit without vectors."""


@dataclass(frozen=True)
class Built:
    """A loaded shared object. `verdict` is hit, miss or corrupt."""

    library: ctypes.CDLL
    key: str
    verdict: str
    seconds: float
    compiled: tuple[Compiled, ...] = ()
    """How each translation unit was compiled; empty for a hit."""


def build(source: str, toolchain: Toolchain, cache_dir: Path, parts: Sequence[str] = ()) -> Built:
    """Return the loaded shared object of a source, which is compiled unless it is in the cache.

    `parts` are translation units that together define what the source defines. They are compiled
    side by side. Raises BuildError.
    """
    start = time.perf_counter()
    key = toolchain.key(source)
    path = _path(key, cache_dir)
    verdict, compiled = "hit", tuple[Compiled, ...]()
    library = _load(path)
    if library is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # eviction is by time of last use
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=TIMEOUT):
            library = _load(path)
            if library is None:
                verdict = "corrupt" if path.exists() else "miss"
                compiled = _compile(source, parts, toolchain, path)
                library = ctypes.CDLL(str(path))
        keep_within(cache_dir / "so", LARGEST)
    return Built(library, key, verdict, time.perf_counter() - start, compiled)


def is_built(source: str, toolchain: Toolchain, cache_dir: Path) -> bool:
    """Return whether the shared object of a source is in the cache."""
    return _path(toolchain.key(source), cache_dir).exists()


def _path(key: str, cache_dir: Path) -> Path:
    return cache_dir / "so" / key[:2] / f"{key}.so"


def _load(path: Path) -> ctypes.CDLL | None:
    """Return the library; None if it does not exist or cannot be loaded."""
    if not path.exists():
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def _compile(
    source: str, parts: Sequence[str], toolchain: Toolchain, path: Path
) -> tuple[Compiled, ...]:
    """Compile to a temporary file and move it into place, so that nobody sees a partial file."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        text = Path(folder) / "kernels.cpp"
        output = Path(folder) / "kernels.so"
        text.write_text(source)
        if len(parts) > 1:
            objects, units = zip(*_compile_parts(parts, toolchain, Path(folder)), strict=True)
            _run(toolchain, toolchain.link_command(objects, output), "")
        else:
            units = (_run(toolchain, toolchain.command(text, output), source),)
        os.replace(output, path)
        with contextlib.suppress(OSError):
            os.replace(text, path.with_suffix(".cpp"))
    return units


def _compile_parts(
    parts: Sequence[str], toolchain: Toolchain, folder: Path
) -> list[tuple[Path, Compiled]]:
    """Compile translation units side by side. Returns their files."""

    def compile_part(number: int) -> tuple[Path, Compiled]:
        text, output = folder / f"part{number}.cpp", folder / f"part{number}.o"
        text.write_text(parts[number])
        return output, _run(toolchain, toolchain.object_command(text, output), parts[number])

    with ThreadPoolExecutor(len(parts), thread_name_prefix="tcdebug-compile") as pool:
        return list(pool.map(compile_part, range(len(parts))))


def _run(toolchain: Toolchain, command: list[str], source: str) -> Compiled:
    """Run the compiler, once more without vectors if it crashes. Raises BuildError."""
    start, crash = time.perf_counter(), ""
    done = _output(toolchain, command)
    if done.returncode != 0 and CRASH in done.stderr:
        crash = _message(toolchain, done, source)
        done = _output(toolchain, [*command, *WITHOUT_VECTORS])
    if done.returncode != 0:
        raise BuildError(_message(toolchain, done, source))
    return Compiled(time.perf_counter() - start, crash)


def _output(toolchain: Toolchain, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises BuildError if that takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{toolchain.path} timed out after {TIMEOUT} s") from error


def _message(toolchain: Toolchain, done: subprocess.CompletedProcess[str], source: str) -> str:
    errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
    lines = source.splitlines()
    shown: list[str] = []
    for error in errors:
        parts = error.split(":")
        if len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) <= len(lines):
            shown.append(f"    {lines[int(parts[1]) - 1].strip()}")
    detail = "\n".join(errors + shown) or done.stderr[-2000:]
    return f"{toolchain.path} exited with {done.returncode}:\n{detail}"
