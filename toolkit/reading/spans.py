"""Turns events with a duration into spans, and computes the time that is a span's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tcdebug.reading.run_dir import Record

TIMED = ("stage.end", "pass", "compile.end", "candidate", "worker.exit", "repro.verify", "run.end")
"""Kinds of events that are written at the end of something, with its duration."""


@dataclass(frozen=True)
class TimeSpan:
    """An interval. Times are seconds since the run began; `own` excludes nested spans."""

    name: str
    kind: str
    start: float
    seconds: float
    own: float
    pid: int
    record: Record

    @property
    def end(self) -> float:
        """The end of the span."""
        return self.start + self.seconds


def spans(records: Iterable[Record], kinds: Sequence[str] = TIMED) -> list[TimeSpan]:
    """Return the spans of these kinds by start, an outer span before the nested ones."""
    found = [_span(r) for r in records if r.get("event") in kinds and "seconds" in r["data"]]
    found.sort(key=lambda s: (s.pid, s.start, -s.seconds))
    own = [s.seconds for s in found]
    open_: list[int] = []
    for k, span in enumerate(found):
        middle = span.start + span.seconds / 2  # an end is written slightly late
        while open_ and (found[open_[-1]].pid != span.pid or found[open_[-1]].end < middle):
            open_.pop()
        if open_:
            own[open_[-1]] -= span.seconds
        open_.append(k)
    return [replace(s, own=max(0.0, o)) for s, o in zip(found, own, strict=True)]


def _span(record: Record) -> TimeSpan:
    kind = str(record["event"])
    data = record["data"]
    name = {
        "stage.end": record.get("stage"),
        "pass": record.get("unit"),
        "compile.end": f"compile {record.get('compile_id', '')} {record.get('direction', '')}",
        "candidate": f"candidate {data.get('number')}: {data.get('purpose')}",
        "worker.exit": data.get("purpose"),
        "repro.verify": "repro.verify",
        "run.end": "run",
    }[kind]
    seconds = float(data["seconds"])
    end = float(record.get("t_ns", 0)) / 1e9
    pid = int(record.get("pid", 0))
    return TimeSpan(str(name or kind), kind, end - seconds, seconds, seconds, pid, record)


def covered(found: Iterable[TimeSpan]) -> float:
    """Return the seconds in which at least one of the spans was active, summed over processes."""
    total, pid, end = 0.0, -1, 0.0
    for span in sorted(found, key=lambda s: (s.pid, s.start)):
        if span.pid != pid:
            pid, end = span.pid, span.start
        total += max(0.0, span.end - max(end, span.start))
        end = max(end, span.end)
    return total
