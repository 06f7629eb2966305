"""Searches the ranks of a distributed job one by one, each without the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.display.progress import ProgressDisplay
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import REPORT, saved_ranks

ALONE = (
    "{rank} ran alone, with torch's fake process group: what other ranks would send was replaced "
    "by what it sends itself"
)
MOST_RANKS = 4
"""The most ranks that are run alone. Most jobs compile the same graphs in all ranks."""


class Sessions(Protocol):
    """What runs sessions and reads their reports: the supervisor of a command."""

    progress: ProgressDisplay
    log: EventLog
    folder: Path

    def session(self, mode: str, **changes: Any) -> int:
        """Run the script in a session; its exit status, or LATE."""
        ...

    def read_report(self, name: str) -> Report | None:
        """Return the report in a file of the run folder; None if there is no such file."""
        ...

    @property
    def seconds_left(self) -> float:
        """The remaining seconds of the time limit."""
        ...


def search_ranks(sessions: Sessions) -> Report | None:
    """Return the report of a graph that fails while its rank runs alone; None if there is none.

    Only ranks run whose graphs could not be judged in their own processes.
    """
    for rank in saved_ranks(sessions.folder)[:MOST_RANKS]:
        if sessions.seconds_left <= 0:
            return None
        sessions.progress.say(f"running {rank} alone, without communication")
        status = sessions.session("search", rank=rank, script=rank.script, args=rank.args)
        if report := sessions.read_report(REPORT):
            notes = [ALONE.format(rank=rank), *report.notes]
            return msgspec.structs.replace(report, notes=notes)
        if status != 0:
            why = f"without the other ranks, its script ended with status {status}"
            sessions.log.emit(Fallback(f"not all graphs of {rank} were judged", why))
    return None
