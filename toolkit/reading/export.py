"""Exports a run for other programs: a trace for Perfetto, or a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec

from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.spans import spans

LEAST = 1e-4
"""Passes that take fewer seconds than this are left out of a trace."""
COLUMNS = (
    "ts", "t_ns", "pid", "event", "level", "compile_id", "direction", "stage", "unit", "site",
    "file", "line", "seconds", "data",
)  # fmt: skip


def chrome_trace(run: Run, records: Sequence[Record]) -> str:
    """Return the spans of a run as complete events of a Chrome trace, which Perfetto opens.

    Each process has its own track. Nested spans are drawn below the outer ones.
    """
    events: list[dict[str, Any]] = []
    for span in spans(records):
        if span.kind == "pass" and span.seconds < LEAST:
            continue
        context = ("compile_id", "direction", "stage", "unit", "graph_id")
        args = {k: span.record[k] for k in context if span.record.get(k)}
        events.append(
            {
                "name": span.name,
                "cat": span.kind,
                "ph": "X",
                "ts": round(span.start * 1e6, 1),
                "dur": round(span.seconds * 1e6, 1),
                "pid": span.pid,
                "tid": 1,
                "args": {**args, **_plain(span.record["data"])},
            }
        )
    least = min((e["ts"] for e in events), default=0.0)
    for event in events:
        event["ts"] = round(event["ts"] - min(least, 0.0), 1)
    trace = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"run": run.path.name, "command": " ".join(run.info.argv)},
    }
    return msgspec.json.encode(trace).decode()


def json_array(records: Sequence[Record]) -> str:
    """Return all events as one JSON array."""
    return msgspec.json.encode(list(records)).decode() + "\n"


def csv_table(records: Sequence[Record]) -> str:
    """Return all events as a CSV table. Fields specific to a kind are JSON in the last column."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in _rows(records):
        writer.writerow(["" if value is None else value for value in row.values()])
    return out.getvalue()


def parquet(records: Sequence[Record]) -> bytes:
    """Return the same table as Parquet, with types. Raises ImportError without pyarrow."""
    pyarrow, parquet_files = import_module("pyarrow"), import_module("pyarrow.parquet")

    types = {"t_ns": pyarrow.int64(), "pid": pyarrow.int64(), "line": pyarrow.int64()}
    types["seconds"] = pyarrow.float64()
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in COLUMNS])
    out = io.BytesIO()
    parquet_files.write_table(pyarrow.Table.from_pylist(list(_rows(records)), schema), out)
    return out.getvalue()


def _rows(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    for record in records:
        where, data = record.get("user_loc") or {}, record.get("data") or {}
        row = {
            **record,
            "file": where.get("filename"),
            "line": where.get("line"),
            "seconds": data.get("seconds"),
            "data": msgspec.json.encode(data).decode(),
        }
        yield {column: row.get(column) for column in COLUMNS}


def _plain(data: Record) -> Record:
    return {k: v for k, v in data.items() if isinstance(v, str | int | float | bool) and v != ""}
