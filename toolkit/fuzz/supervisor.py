"""One node's part of a campaign: a pool of workers, and news for the process that started it.

It runs on any machine, in its own folders. Only the bytes of `news` leave it.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.fuzz.campaign import BadJob, Campaign, WorkerFailed
from tcdebug.fuzz.findings import FILE, Findings
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.reading.run_dir import Record, Tail

Mark = tuple[tuple[str, int], ...]


class Parcel(msgspec.Struct, frozen=True):
    """The folder of a finding: contents by file."""

    slug: str
    files: dict[str, bytes]


class Errand(msgspec.Struct, frozen=True):
    """The task of a node: a number of workers, a job, and the known findings."""

    job: FuzzJob
    jobs: int
    known: tuple[Parcel, ...] = ()
    setup: bytes = b""
    """Contents of `job.setup`, for a node that does not have the file."""


class News(msgspec.Struct, frozen=True):
    """The events since the last call. Paths in the events begin at `folder`.

    `ended` is None while workers run, then the reason why they ended; empty if they are done.
    """

    folder: str
    events: list[dict[str, Any]]
    parcels: list[Parcel]
    ended: str | None = None
    unfit: bool = False
    """Whether no node can do the job."""


class CampaignNode:
    """Owns the workers of one node. Errands and news are bytes, since versions may differ."""

    def __init__(self, errand: bytes) -> None:
        asked = msgspec.msgpack.decode(errand, type=Errand)
        self._folder = Path(tempfile.mkdtemp(prefix="tcdebug-node-"))
        self._run = self._folder / "run"
        self._run.mkdir()
        self._findings = Findings(self._folder / "findings")
        self._sent: dict[str, Mark] = {}
        self._tail = Tail(self._run)
        self._ended: str | None = None
        self._unfit = False
        self._learn(asked.known)
        job = self._here(asked)
        # the workers end with the thread that started them
        thread = threading.Thread(target=self._work, args=(job, asked.jobs), daemon=True)
        thread.start()

    def ready(self) -> bool:
        """True, as soon as the node answers."""
        return True

    def news(self) -> bytes:
        """Return the events since the last call, as `News`."""
        ended = self._ended  # read first: later events are reported next time
        news = News(
            str(self._findings.folder), self._tail.new(), list(self._changed()), ended, self._unfit
        )
        return msgspec.msgpack.encode(news)

    def learn(self, parcels: bytes) -> None:
        """Treat findings of other nodes as known."""
        self._learn(msgspec.msgpack.decode(parcels, type=tuple[Parcel, ...]))

    def close(self) -> None:
        """Remove the files of this node."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _here(self, asked: Errand) -> FuzzJob:
        """Return the job with the paths of this node."""
        job, setup = asked.job, asked.job.setup
        if setup and not Path(setup).exists():
            path = self._folder / "setup" / Path(setup).name  # signatures contain both names
            path.parent.mkdir()
            path.write_bytes(asked.setup)
            setup = str(path)
        database = job.database
        if database and "://" not in database:
            database = str(self._folder / "examples")
        return msgspec.structs.replace(
            job, run_dir=str(self._run), findings=str(self._findings.folder), database=database,
            setup=setup,
        )  # fmt: skip

    def _work(self, job: FuzzJob, jobs: int) -> None:
        try:
            Campaign(self._run, CampaignTally(), lambda tally: None).run(job, jobs)
            ended = ""
        except BadJob as problem:
            ended, self._unfit = str(problem), True
        except WorkerFailed as problem:
            ended = str(problem)
        except Exception as problem:  # nothing else reports it, since this is a separate thread
            ended = f"{type(problem).__name__}: {problem}"
        self._ended = ended

    def _learn(self, parcels: Iterable[Parcel]) -> None:
        for parcel in parcels:
            unpack(parcel, self._findings.folder)
            self._sent[parcel.slug] = _mark(self._findings.folder / parcel.slug)

    def _changed(self) -> Iterable[Parcel]:
        """Yield the findings that have changed since they were reported."""
        for path in sorted(self._findings.folder.glob(f"*/{FILE}")):
            mark = _mark(path.parent)
            if self._sent.get(path.parent.name) != mark:
                self._sent[path.parent.name] = mark
                yield pack(path.parent)


def _mark(folder: Path) -> Mark:
    files = (p for p in folder.iterdir() if p.is_file())
    return tuple(sorted((p.name, p.stat().st_mtime_ns) for p in files))


def pack(folder: Path) -> Parcel:
    """Return the folder of a finding as bytes."""
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}
    return Parcel(folder.name, files)


def unpack(parcel: Parcel, folder: Path) -> None:
    """Add the folder of a finding; `finding.json` comes last, as it makes the finding valid."""
    place = folder / Path(parcel.slug).name
    place.mkdir(parents=True, exist_ok=True)
    for name in sorted(parcel.files, key=lambda name: name == FILE):
        fresh = place / f"{Path(name).name}.new"
        fresh.write_bytes(parcel.files[name])
        fresh.replace(place / Path(name).name)


def of_node(events: Iterable[Record], there: str, here: Path) -> bytes:
    """Return the lines of a node's events, with local paths of the findings."""
    lines = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    return lines.replace(there.encode(), str(here).encode())
