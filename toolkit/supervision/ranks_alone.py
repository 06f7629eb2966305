"""Searches the ranks of a distributed job one by one, each without the others."""

from __future__ import annotations

import msgspec

from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import REPORT, saved_ranks
from tcdebug.supervision.supervisor import Supervisor

ALONE = (
    "{rank} ran alone, with torch's fake process group: what other ranks would send was replaced "
    "by what it sends itself"
)
MOST_RANKS = 4
"""The most ranks that are run alone. Most jobs compile the same graphs in all ranks."""


def search_ranks(supervisor: Supervisor) -> Report | None:
    """Return the report of a graph that fails while its rank runs alone; None if there is none.

    Only ranks run whose graphs could not be judged in their own processes.
    """
    for rank in saved_ranks(supervisor.folder)[:MOST_RANKS]:
        if supervisor.seconds_left <= 0:
            return None
        supervisor.progress.say(f"running {rank} alone, without communication")
        status = supervisor.session("search", rank=rank, script=rank.script, args=rank.args)
        if report := supervisor.read_report(REPORT):
            notes = [ALONE.format(rank=rank), *report.notes]
            return msgspec.structs.replace(report, notes=notes)
        if status != 0:
            why = f"without the other ranks, its script ended with status {status}"
            supervisor.log.emit(Fallback(f"not all graphs of {rank} were judged", why))
    return None
