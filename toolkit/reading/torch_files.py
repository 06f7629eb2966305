"""Imports the files that TORCH_TRACE writes as a run with the same events as a live run.

A line consists of a prefix with time, process and place, and {kind: details}. A payload follows on
lines that begin with a tab. The time has neither year nor time zone; they are taken from the file
and from this machine.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import RunEnd, RunStart
from tcdebug.minifier.trace.trace_records import Translator
from tcdebug.reading.run_dir import NoRun, Run, find

PREFIX = re.compile(r"V(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) +(\d+) [^\]]+\] ")
RANK = re.compile(r"_rank_(\d+)_")
MICROSECOND = timedelta(microseconds=1)
SEVERAL = ("*torch_trace_*.log", "*.log")


class NoTrace(Exception):
    """There are no TORCH_TRACE files. The message says where they were expected."""


@dataclass(frozen=True)
class TraceLine:
    """One record of a file."""

    time: datetime
    pid: int
    metadata: dict[str, Any]
    payload: str


def trace_files(source: Path) -> list[Path]:
    """Return the trace files of a folder, or the named file. Raises NoTrace."""
    if source.is_file():
        return [source]
    for pattern in SEVERAL:
        if found := sorted(source.glob(pattern)):
            return found
    raise NoTrace(f"{source} has no *.log file of TORCH_TRACE")


def imported(source: Path) -> tuple[Run, str]:
    """Return a run made of the trace files of a folder, and what was imported. Raises NoTrace."""
    files = trace_files(source)
    folder = run_folder.create("import")
    log = EventLog(folder, own=True)
    log.emit(RunStart("import", ["import", str(source)], str(Path.cwd())), t_ns=0)
    try:
        records, seconds = import_files(files, log)
    except NoTrace:
        shutil.rmtree(folder)
        raise
    log.emit(RunEnd(0, seconds), t_ns=round(seconds * 1e9))
    return find(str(folder)), f"imported {records} records from {len(files)} files"


def found_or_imported(name: str | None) -> Run:
    """Return a run by its name, or made of a folder of trace files. Raises NoRun."""
    try:
        return find(name)
    except NoRun:
        if name is None or not Path(name).is_dir():
            raise
    try:
        return imported(Path(name))[0]
    except NoTrace as problem:
        raise NoRun(f"{name} is not a run folder, and {problem}") from None


def import_files(files: list[Path], log: EventLog) -> tuple[int, float]:
    """Write the events of trace files to a log; the number of records, and their time span.

    Raises NoTrace.
    """
    lines = {file: list(read_lines(file)) for file in files}
    times = [line.time for records in lines.values() for line in records]
    if not times:
        names = ", ".join(str(f) for f in files)
        raise NoTrace(f"{names} has no record of torch's structured trace")
    start = min(times)
    for file, records in lines.items():
        rank = RANK.search(file.name)
        translator = Translator(log)
        for line in records:
            translator.feed(
                line.metadata,
                line.payload,
                ts=_written(line.time),
                t_ns=(line.time - start) // MICROSECOND * 1000,
                pid=line.pid,
                rank=int(rank[1]) if rank else None,
            )
    return len(times), (max(times) - start).total_seconds()


def read_lines(file: Path) -> Iterator[TraceLine]:
    """Yield the records of a file. Invalid lines, as after a crash, are skipped."""
    year = datetime.fromtimestamp(file.stat().st_mtime).year
    head, payload = "", list[str]()
    with file.open(errors="replace") as opened:
        for line in opened:
            if line.startswith("\t"):
                payload.append(line[1:])
                continue
            if head and (record := _record(head, payload, year)):
                yield record
            head, payload = line, []
    if head and (record := _record(head, payload, year)):
        yield record


def _record(head: str, payload: list[str], year: int) -> TraceLine | None:
    match = PREFIX.match(head)
    if match is None:
        return None
    month, day, hour, minute, second, micro, pid = (int(g) for g in match.groups())
    try:
        metadata = msgspec.json.decode(head[match.end() :], type=dict[str, Any])
        time = datetime(year, month, day, hour, minute, second, micro).astimezone(UTC)
    except (msgspec.DecodeError, ValueError):
        return None
    return TraceLine(time, pid, metadata, "".join(payload).removesuffix("\n"))


def _written(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
