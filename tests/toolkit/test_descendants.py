"""Processes below a session that use torch, of which a report says that they were not watched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tcdebug.minifier.processes.interpreters import Interpreter
from tcdebug.supervision.descendants import Descendants

TORCH = Path(find_spec("torch").origin).parent / "lib" / "libtorch_python.so"  # type: ignore[union-attr, arg-type]
MAPS = f"""
import mmap
file = open({str(TORCH)!r}, "rb")
mapped = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
"""
"""Maps the library of torch into memory, as an import of torch does."""
SECONDS = 30.0


def seen_with_torch(pid: int) -> dict[int, str]:
    """Return what is seen below this process once a process has mapped torch."""
    maps, end = Path(f"/proc/{pid}/maps"), time.monotonic() + SECONDS
    while "libtorch_python" not in maps.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    seen = Descendants(os.getpid())
    seen.look()
    return seen.commands


@pytest.fixture
def interpreter(tmp_path: Path) -> Iterator[Interpreter]:
    """An interpreter for repros that has torch."""
    tmp_path.joinpath("maps_torch.py").write_text(MAPS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    started = Interpreter.started(environment, ["maps_torch"])
    yield started
    started.end()


def test_an_interpreter_for_repros_is_no_process_of_a_script(interpreter: Interpreter) -> None:
    assert interpreter.child.pid not in seen_with_torch(interpreter.child.pid)


def test_a_process_of_a_script_is_seen_with_its_command_on_one_line() -> None:
    code = f"{MAPS}\nimport time; time.sleep({SECONDS})"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            commands = seen_with_torch(process.pid)
        finally:
            process.kill()
    assert commands[process.pid].startswith(f"{sys.executable} -c ' import mmap file = ")
