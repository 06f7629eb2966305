"""Shows a run as a timeline: compiles, stages with times, changes, kernels, failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.markup import escape

from tcdebug.display.console import results, write
from tcdebug.display.text import first_line
from tcdebug.reading.breaks import read_break
from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.summary import place

MOST_LINES = 400
"""Maximum number of events; the middle is omitted beyond it. `--json` has all."""


def show_timeline(run: Run, records: Sequence[Record]) -> None:
    """Print the events of a run in order of time, one per line."""
    console = results()
    console.print(f"[path]{run.path}[/]  {escape(' '.join(run.info.argv[1:]))}")
    lines = [event_line(r) for r in records]
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        cut = len(lines) - MOST_LINES
        lines = [*lines[:half], f"[dim]... {cut} more, see --json ...[/]", *lines[-half:]]
    for line in lines:
        console.print(line)


def write_json_lines(records: Iterable[Record]) -> None:
    """Print events as JSON, one per line."""
    for record in records:
        write(msgspec.json.encode(record).decode() + "\n")


def event_line(record: Record) -> str:
    """Return one event as a line: time, graph, description."""
    seconds = record.get("t_ns", 0) / 1e9
    where = " ".join(str(record[k]) for k in ("compile_id", "direction", "stage") if record.get(k))
    return f"[dim]{seconds:9.3f}[/] {where:<28} {_what(record)}"


def _what(record: Record) -> str:
    data = record.get("data", {})
    kind = str(record.get("event"))
    match kind:
        case "stage.end":
            return _stage(data)
        case "pass":
            return _pass(record, data)
        case "decision":
            answer = "[good]yes[/]" if data["allowed"] else "[bad]no[/]"
            return f"{answer} [unit]{record.get('unit')}[/] {escape(data['subject'])}"
        case "kernel":
            computes = ", ".join(data["computes"][:6])
            return f"kernel [unit]{data['name']}[/] {escape(computes)}"
        case "compile.start":
            return f"{data['nodes']} nodes, {data['inputs']} inputs"
        case "compile.end":
            externs = ", ".join(f"{k} x{v}" for k, v in data["externs"].items())
            return (
                f"[good]compiled[/] in {data['seconds']:.3f} s: {data['kernels']} kernels; "
                f"ATen: {escape(externs) or 'none'}"
            )
        case "compile.fail":
            return f"[bad]failed[/] {escape(data['exception'])}: {first_line(data['message'], 200)}"
        case "failure":
            return f"[bad]{data['failure']}[/] {first_line(data['message'], 200)}"
        case "graph.break":
            found = read_break(data["reason"], place(record))
            return f"[warn]graph break[/] [path]{found.where}[/] {first_line(found.what, 200)}"
        case "recompile":
            return f"[warn]recompile[/] {first_line(data['reason'], 200)}"
        case "remark":
            return f"[dim]{data['verdict']}[/] {place(record)} {escape(data['message'])}"
        case "guard.summary":
            return f"{data['total']} guards, {len(data['guards'])} on values"
        case "compile.metrics":
            what = "backward" if data["backward"] else f"{escape(data['frame'])} {place(record)}"
            return f"{what}: {data['nodes']} nodes, {data['guards']} guards"
        case "candidate":
            cached = " (known)" if data["cached"] else ""
            return f"{escape(data['purpose'])}: {data['outcome']}{cached}"
    return f"{kind} {escape(_rest(data))}"


def _stage(data: Record) -> str:
    took = f"{data['seconds'] * 1e3:8.1f} ms"
    if not data["nodes_before"]:  # of a stage in torch, only the time is known
        return took
    sizes = f"{data['nodes_before']} -> {data['nodes_after']}"
    changed = "" if data["changed"] else " [dim]unchanged[/]"
    return f"{took}  {sizes} nodes{changed}"


def _pass(record: Record, data: Record) -> str:
    name = f"[unit]{record.get('unit')}[/]"
    if not data["allowed"]:
        return f"{name} [bad]off[/]"
    if not data["changed"]:
        return f"{name} [dim]unchanged[/]"
    return f"{name} {data['nodes_before']} -> {data['nodes_after']} nodes"


def _rest(data: Record) -> str:
    text = "  ".join(f"{k}={v}" for k, v in data.items() if v not in ("", [], {}, None))
    return text[:240]
