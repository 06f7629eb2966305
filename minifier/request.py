"""What the process that attends to a script's graphs is asked to do, and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A script, and what to do with its graphs.

    `mode`: watch (failures leave repros) or capture (every graph does, or the one of `graph`).
    """

    mode: str
    script: str
    args: list[str]
    run_dir: str
    backend: str | None = None
    check: bool = False
    every_call: bool = False
    graph: int | None = None
    output: str = ""
    """Where captured graphs go."""


def start(request: Request, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process of a request; it has our terminal."""
    path = Path(request.run_dir) / "request.json"
    path.write_bytes(msgspec.json.encode(request))
    command = [sys.executable, "-m", "tcdebug.minifier.attend", str(path)]
    return subprocess.Popen(command, env={**os.environ, **environment})
