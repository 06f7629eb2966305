"""What all tests share: compiles that time nothing, and an interpreter that has torch already."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

WARM = Path(__file__).parent / "warm"
sys.path.insert(0, str(WARM))
sys.path.insert(0, str(Path(__file__).parent / "support"))
from warm_client import READ_AT_IMPORT  # noqa: E402 # it is beside the server
from warm_popen import warm_popen  # noqa: E402

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",  # a process with a device awake cannot be forked
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
"""What torch reads as it is imported, as repro scripts have it."""


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """Ctrl-C is heard although a shell that starts a job in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def rare_collections() -> None:
    """A collection looks at a million objects of torch, and compiles make many objects."""
    gc.set_threshold(100_000, 50, 50)


@pytest.fixture(scope="session", autouse=True)
def untimed_guards() -> None:
    """For its log Dynamo times its guards behind a flush of the CPU's caches: 20 ms a compile."""
    from torch._dynamo import guards  # noqa: PLC0415 # collection stays fast

    given: Any = guards
    given.profile_guard_manager = lambda *_: 0.0


@dataclass(frozen=True)
class WarmPython:
    """What to start in place of Python where it is not the import of torch that is tested."""

    path: str
    """A command. What it runs is a child of the server."""
    popen: type[subprocess.Popen[Any]]
    """Starts the command. What it runs is a child of the process that calls this."""


@pytest.fixture(scope="session")
def warm_server() -> Iterator[WarmPython]:
    """An interpreter that has imported torch, and is forked."""
    environment = {**os.environ, **SETTINGS}
    settings = {k: v for k, v in environment.items() if k.startswith(READ_AT_IMPORT)}
    with tempfile.TemporaryDirectory(prefix="tcdebug-warm-") as folder:
        address, client = f"{folder}/socket", Path(folder, "python")
        text = (WARM / "warm_client.py").read_text()
        client.write_text(f"#!{sys.executable} -IS\n{text}\nmain({address!r}, {settings!r})\n")
        client.chmod(0o755)
        command = [sys.executable, str(WARM / "warm_server.py"), address, str(client)]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            yield WarmPython(str(client), warm_popen(str(client), address, settings))
            server.kill()  # the end of its input may be held back by what a test has forked


@pytest.fixture(scope="session")
def warm_python(warm_server: WarmPython) -> str:
    """The command that behaves as Python and need not import torch."""
    return warm_server.path


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, warm_server: WarmPython) -> None:
    """Python processes that this one starts, sessions too, find torch imported."""
    monkeypatch.setattr(sys, "executable", warm_server.path)
    monkeypatch.setattr(subprocess, "Popen", warm_server.popen)
