"""Object files that several candidates share.

Inductor compiles the C++ code of a package anew each time, while it keeps kernels of torch.compile
by their source. With equal source and command, the object file of an earlier candidate is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

FOLDER = "tcdebug_objects"
"""The folder of object files, in inductor's cache."""
COMPILER = Patch(
    "torch._inductor.cpp_builder",
    "_run_compile_cmd",
    "candidates compile equal C++ code of packages again",
    takes=("cmd_line", "cwd"),
)
PATCHES = (COMPILER,)


@contextlib.contextmanager
def shared_objects(gate: Gate, log: EventLog) -> Iterator[None]:
    """Take object files of packages from earlier compiles of the same code by the same command."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run_compile_cmd(cmd_line: str, cwd: str) -> Any:
            compile_it = functools.partial(original, cmd_line, cwd)
            if not original.__module__.startswith("torch."):
                return compile_it()  # the script has replaced it
            return _from_earlier(shlex.split(cmd_line), compile_it)

        return run_compile_cmd

    with patched(COMPILER, make, log):
        yield


def _from_earlier(command: list[str], compile_it: Callable[[], Any]) -> Any:
    """Copy the object file that a command would write, or run the command and keep the file."""
    paths = _source_and_object(command)
    if paths is None:
        return compile_it()
    source, target = paths
    kept = Path(cache_dir(), FOLDER, f"{_key(command, source, target)}.o")
    if kept.is_file():
        shutil.copyfile(kept, target)
        return None
    result = compile_it()
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    shutil.copyfile(target, partial)
    partial.replace(kept)
    return result


def _source_and_object(command: list[str]) -> tuple[Path, Path] | None:
    """Return the C++ file that a command compiles and its object file, if it compiles one file."""
    sources = [word for word in command[1:] if word.endswith(".cpp")]
    if len(sources) != 1 or "-c" not in command or "-o" not in command[:-1]:
        return None
    return Path(sources[0]), Path(command[command.index("-o") + 1])


def _key(command: list[str], source: Path, target: Path) -> str:
    """Return a hash of what an object file depends on.

    Inductor ends the source of a package with comments that contain the commands.
    """
    compiler = shutil.which(command[0]) or command[0]
    words = [word for word in command if word not in (str(source), str(target))]
    code, _, _ = source.read_text().partition(f"\n// {command[0]} ")
    changed = Path(compiler).stat().st_mtime_ns if Path(compiler).exists() else 0
    parts = (torch.__version__, compiler, str(changed), *words, "", code.rstrip())
    return sha256("\0".join(parts).encode()).hexdigest()
