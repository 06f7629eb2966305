"""Creates run folders: `.tcdebug/<time>-<command>/` with run.json, events and artifacts.

`tcdebug.reading.run_dir` finds, lists and reads them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.retention import runs_kept

BASE = ".tcdebug"
KEEP = "keep"
"""A file that marks a run folder that is never pruned: the run failed, or found something."""
UNFINISHED = "unfinished"
"""A file in the run folder of a command that has not ended, or was killed."""
REPROS = ("repro*.py", "graph_*.py", "graphs/*/repro*.py", "other/*/repro*.py")
"""Files that make a run worth keeping: their paths were printed."""


class RunInfo(msgspec.Struct, frozen=True):
    """The contents of run.json. `started` is Unix time in seconds.

    `removed` names the runs that were pruned when this one was created.
    """

    run_id: str
    command: str
    argv: list[str]
    cwd: str
    pid: int
    started: float
    monotonic_ns: int
    removed: list[str] = []


def create(command: str, base: Path | None = None) -> Path:
    """Create a run folder under `base` (default ./.tcdebug), else under the temporary folder.

    Removes the oldest healthy runs beyond `runs_kept()`; run.json names them. A run that found
    something is never removed. Raises BadOption for a bad TCDEBUG_KEEP_RUNS, OSError if neither
    folder is writable.
    """
    spare = Path(tempfile.gettempdir()) / f"tcdebug-{os.getuid()}"
    for parent in (base or Path.cwd() / BASE, spare):
        with contextlib.suppress(OSError):
            return _create_in(parent, command)
    raise OSError("no run folder: neither the current nor the temporary folder is writable")


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
        write_info(folder, command, _prune(parent, folder.name))
        _point_latest(parent, folder.name)
        return folder
    raise OSError(f"there are a thousand runs named {stem}")


def write_info(folder: Path, command: str, removed: Sequence[str] = ()) -> None:
    """Make a folder a run folder by writing its run.json, with this process as its owner."""
    info = RunInfo(
        run_id=folder.name,
        command=command,
        argv=list(sys.argv),
        cwd=os.getcwd(),
        pid=os.getpid(),
        started=time.time(),
        monotonic_ns=time.monotonic_ns(),
        removed=list(removed),
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
    """Read run.json. None if it is missing or cannot be read."""
    try:
        return msgspec.json.decode((folder / "run.json").read_bytes(), type=RunInfo)
    except (OSError, msgspec.DecodeError):
        return None


def keep(folder: Path) -> None:
    """Mark a run as one that is never pruned."""
    with contextlib.suppress(OSError):
        (folder / KEEP).touch()


def begin(folder: Path) -> None:
    """Mark a run as unfinished: it is not pruned until `finish`."""
    (folder / UNFINISHED).touch()


def finish(folder: Path, *, healthy: bool) -> None:
    """Say that a run has ended, and whether it found nothing."""
    if not healthy:
        keep(folder)
    (folder / UNFINISHED).unlink(missing_ok=True)


def is_healthy(folder: Path) -> bool:
    """Return whether a run ended and found nothing: it is not marked, and holds no repro."""
    if (folder / KEEP).exists() or (folder / UNFINISHED).exists():
        return False
    return not any(True for pattern in REPROS for _ in folder.glob(pattern))


def is_alive(pid: int) -> bool:
    """Return whether a process exists."""
    return Path(f"/proc/{pid}").exists()


def _prune(parent: Path, new: str) -> list[str]:
    """Remove the oldest healthy runs beyond those that are kept. Returns their names."""
    healthy = sorted(
        (
            (info.started, folder)
            for folder in parent.iterdir()
            if not folder.is_symlink()  # `latest` is no run
            and folder.name != new
            and (info := read_info(folder))
            and is_healthy(folder)
            and not is_alive(info.pid)
        ),
        reverse=True,
    )
    removed = [folder for _, folder in healthy[max(runs_kept() - 1, 0) :]]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return sorted(folder.name for folder in removed)
