"""A run folder: `.tcdebug/<time>-<command>/` with run.json, events and artefacts.

Here is only what makes one; `tcdebug.reading.run_dir` finds, lists and reads them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

BASE = ".tcdebug"
KEPT = 20
"""Run folders that are kept; making a new one removes the oldest finished ones beyond this."""


class RunInfo(msgspec.Struct, frozen=True):
    """run.json: what a run folder says about itself."""

    run_id: str
    command: str
    argv: list[str]
    cwd: str
    pid: int
    started: float
    monotonic_ns: int


def create(command: str, base: Path | None = None) -> Path:
    """Make a run folder under `base` (./.tcdebug), or under the temporary folder if that fails."""
    spare = Path(tempfile.gettempdir()) / f"tcdebug-{os.getuid()}"
    for parent in (base or Path.cwd() / BASE, spare):
        with contextlib.suppress(OSError):
            return _create_in(parent, command)
    raise OSError("no folder for the run: neither the current nor the temporary folder is writable")


def _create_in(parent: Path, command: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    ignore = parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    stem = time.strftime("%Y%m%d-%H%M%S") + "-" + _safe(command)
    for attempt in range(1, 1000):
        folder = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        write_info(folder, command)
        _point_latest(parent, folder.name)
        _prune(parent)
        return folder
    raise OSError(f"a thousand runs called {stem}")


def write_info(folder: Path, command: str) -> None:
    """Make a folder a run folder, of which this process is the first."""
    info = RunInfo(
        run_id=folder.name,
        command=command,
        argv=list(sys.argv),
        cwd=os.getcwd(),
        pid=os.getpid(),
        started=time.time(),
        monotonic_ns=time.monotonic_ns(),
    )
    (folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(info)))


def _safe(command: str) -> str:
    text = "".join(c if c.isalnum() or c in "-_" else "-" for c in command)
    return text[:40] or "run"


def _point_latest(parent: Path, name: str) -> None:
    fresh = parent / f".latest-{os.getpid()}"
    with contextlib.suppress(OSError):
        fresh.symlink_to(name)
        fresh.replace(parent / "latest")


def read_info(folder: Path) -> RunInfo | None:
    """What run.json says, None where there is none or it cannot be read."""
    try:
        return msgspec.json.decode((folder / "run.json").read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError):
        return None


def _prune(parent: Path) -> None:
    runs = sorted(
        (
            (info.started, folder)
            for folder in parent.iterdir()
            if not folder.is_symlink() and (info := read_info(folder))  # `latest` is no run
        ),
        reverse=True,
    )
    for _, folder in runs[KEPT:]:
        info = read_info(folder)
        if info is not None and not _alive(info.pid):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
