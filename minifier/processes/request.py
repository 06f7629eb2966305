"""What the process that attends to a script's graphs is asked to do, and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A script, and what to do with its graphs.

    `mode`: watch (failures leave repros), capture (every graph does, or the one of `graph`) or
    explain (nothing does, torch is only listened to).
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


def start(
    request: Request, environment: Mapping[str, str], output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start the process of a request; what it prints goes to `output`, or to our terminal."""
    path = Path(request.run_dir) / "request.json"
    path.write_bytes(msgspec.json.encode(request))
    command = [sys.executable, "-m", "tcdebug.minifier.sessions.attend", str(path)]
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env={**os.environ, **environment},
    )
