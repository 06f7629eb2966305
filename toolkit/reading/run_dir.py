"""Finds run folders and reads their contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import decoded
from tcdebug.compiler.events.run_folder import BASE, RunInfo, read_info

Record = dict[str, Any]
"""One event: the keys of the envelope, and `data`."""


class NoRun(Exception):
    """No run folder matches. The message names those that exist."""


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path
    info: RunInfo

    def events(self) -> list[Record]:
        """Return all events of all processes in order of time. Incomplete lines are skipped."""
        records = [r for file in sorted(self.path.glob("events*.jsonl")) for r in read(file)]
        records.sort(key=lambda r: (r.get("t_ns", 0), r.get("pid", 0), r.get("seq", 0)))
        return records


def read(path: Path) -> Iterator[Record]:
    """Return the events of one file. Incomplete lines are skipped."""
    return decoded(path.read_bytes().splitlines(), Record)


def runs(base: Path | None = None) -> list[Run]:
    """Return all runs in ./.tcdebug, newest first."""
    parent = base or Path(BASE)
    found: list[Run] = []
    for folder in parent.iterdir() if parent.is_dir() else ():
        if not folder.is_symlink() and (info := read_info(folder)) is not None:
            found.append(Run(folder, info))
    return sorted(found, key=lambda r: (r.info.started, r.path.name), reverse=True)


def find(name: str | None, base: Path | None = None) -> Run:
    """Return a run by path, by the beginning of its name, or the newest one. Raises NoRun."""
    if name is not None and (info := read_info(Path(name))) is not None:
        return Run(Path(name), info)
    known = runs(base)
    if name in (None, "latest"):
        if known:
            return known[0]
        raise NoRun(f"no run in {base or BASE}: make one with tcdebug run or tcdebug bisect")
    matching = [r for r in known if r.path.name.startswith(str(name))]
    if not matching:
        raise NoRun(f"no run {name!r}; the newest are: {_names(known)}")
    return matching[0]


def named(name: str, base: Path | None = None) -> Run:
    """Return the run with this path or name, or the only one whose name begins so. Raises NoRun."""
    if (info := read_info(Path(name))) is not None and not Path(name).is_symlink():
        return Run(Path(name), info)
    known = [r for r in runs(base) if r.path.name.startswith(name)]
    exact = [r for r in known if r.path.name == name]
    if len(exact or known) == 1:
        return (exact or known)[0]
    if known:
        raise NoRun(f"{name!r} is the beginning of {len(known)} runs: {_names(known)}")
    raise NoRun(f"no run {name!r}; the newest are: {_names(runs(base))}")


def _names(known: list[Run]) -> str:
    return ", ".join(r.path.name for r in known[:5]) or "none"


class Tail:
    """Reads the events of a run folder while they are written, across all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}

    def new(self) -> list[Record]:
        """Return the events written since the last call, complete lines only."""
        records: list[Record] = []
        for path in sorted(self.folder.glob("events*.jsonl")):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = offset + len(whole)
            records += decoded(whole.splitlines(), Record)
        records.sort(key=lambda r: r.get("t_ns", 0))
        return records
