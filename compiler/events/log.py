"""Writes events as JSON lines, and saves IR and sources beside them.

Each process writes its own file: the process that made the run folder writes `events.jsonl`, every
other one `events-<pid>.jsonl`. Each line is one `write`, so a killed process can truncate only its
last line. The user's structlog and logging configuration is neither used nor changed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.event import Event

if TYPE_CHECKING:
    from tcdebug.compiler.events.writer import EventLogger

ENVELOPE = {
    "ts": "wall time, RFC 3339, UTC",
    "t_ns": "nanoseconds since the start of the run, monotonic",
    "seq": "number of the event within its process, from 0",
    "event": "the kind of event",
    "level": "debug, info, warning or error",
    "run_id": "the name of the run folder",
    "pid": "the process id",
    "rank": "rank in a distributed job, from the variable RANK",
    "compile_id": "the compile id as torch writes it, such as 0/0",
    "graph_id": "structural hash of the graph that Dynamo captured; equal graphs have equal hashes",
    "direction": "forward, backward or inference; a body of control flow has its name after a dot; "
    "capture or joint before the graph is split",
    "stage": "the stage of the compiler",
    "unit": "the unit that acted or that the gate was asked about",
    "site": "stable id of a decision",
    "user_loc": "the user's line: {filename, line, name}",
    "data": "the fields of the kind",
}


class EventLog:
    """Writes the events of one run to its folder. Without a folder it writes nothing.

    `bind` adds context. `own` says that this process made the folder.
    """

    def __init__(self, folder: Path | None, *, own: bool = False, artifacts: bool = True) -> None:
        self.folder = folder
        self.artifacts = artifacts and folder is not None
        self._written: set[str] = set()
        self._logger: EventLogger | None = None
        if folder is None:
            return
        info = run_folder.read_info(folder)
        path = folder / ("events.jsonl" if own else f"events-{os.getpid()}.jsonl")
        start = info.monotonic_ns if info else time.monotonic_ns()
        context: dict[str, Any] = {"run_id": info.run_id if info else folder.name}
        if rank := os.environ.get("RANK"):
            context["rank"] = int(rank)
        from tcdebug.compiler.events.writer import event_logger  # noqa: PLC0415 # start-up time

        self._logger = event_logger(path, start).bind(**context)

    def bind(self, **context: Any) -> EventLog:
        """Return the same log with more envelope fields on every event."""
        bound = EventLog(None)
        bound.artifacts = self.artifacts
        bound.folder, bound._written = self.folder, self._written
        bound._logger = self._logger and self._logger.bind(**context)
        return bound

    def emit(self, event: Event, **context: Any) -> None:
        """Write an event, with more envelope fields.

        An event of level `error` marks the run as one that is never pruned.
        """
        if self._logger is not None:
            self._logger.event(event, **context)
            if event.level == "error" and self.folder is not None:
                run_folder.keep(self.folder)

    def save(self, name: str, text: str) -> str:
        """Save a text beside the events. Returns its path relative to the run folder.

        The path contains a hash of the text, so equal texts are saved once. Returns "" if the log
        keeps no artifacts.
        """
        if self.folder is None or not self.artifacts:
            return ""
        content = text.encode()
        digest = blake2b(content, digest_size=4).hexdigest()
        stem, dot, suffix = name.rpartition(".")
        relative = f"{stem}-{digest}.{suffix}" if dot else f"{name}-{digest}"
        if relative not in self._written:
            path = self.folder / relative
            if not path.parent.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            self._written.add(relative)
        return relative


@lru_cache(maxsize=8)
def process_log(folder: Path | None, artifacts: bool, pid: int) -> EventLog:
    """Return the log of this process, in the given folder or in a new run folder."""
    name = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if run_folder.read_info(folder) is None:
            run_folder.write_info(folder, name)
        return EventLog(folder, artifacts=artifacts)
    return EventLog(run_folder.create(name), own=True, artifacts=artifacts)


Kind = TypeVar("Kind")


def decoded(lines: Iterable[bytes], kind: type[Kind]) -> Iterator[Kind]:
    """Decode JSON lines as records of a kind. Skips lines that cannot be decoded."""
    decoder = msgspec.json.Decoder(kind)
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            yield decoder.decode(line)


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the events in the files of a folder, file by file."""
    for file in sorted(folder.glob("events*.jsonl")):
        yield from decoded(file.read_bytes().splitlines(), dict[str, Any])


def event_fields(event: type[Event]) -> Mapping[str, Any]:
    """Return the JSON Schema of the data of a kind of event."""
    schema = msgspec.json.schema(event)
    definition: Mapping[str, Any] = schema["$defs"][event.__name__]
    return definition
