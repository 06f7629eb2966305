"""What the events of a run say about its graphs and its fallbacks."""

from __future__ import annotations

import re
from pathlib import Path

from tcdebug.compiler.events.run_events import CompiledCalled, WorkerStart
from tcdebug.minifier.cases.layer_names import PROGRAM_PASSES
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import NOT_BY_ITSELF, NOT_CAPTURED, ORDER, PASSED, SCRIPT_FAILED
from tcdebug.reading.run_dir import find

STUCK = -10
"""The exit status of a session that was ended because a capture or a pass did not end."""

NO_GRAPH = (
    "torch.compile captured no graph: check that the script calls torch.compile, and calls the "
    "result"
)
NOTHING_TO_COMPILE = (
    "compiled functions were called{}, but Dynamo gave no graph to a backend: `tcdebug explain` "
    "shows the graph breaks in them, if there are any"
)
WRONG_INPUT = (
    "Dynamo calls graph {} with another dtype than it captured: {}. A kernel may read it wrongly"
)
CHILD = "child "
"""The beginning of the purpose of a process that the script started."""

GRAPH = re.compile(r"^graph (\d+)\b")
"""The beginning of what events say about a graph."""


def slowest_graph(folder: Path) -> float:
    """Return the CPU-seconds of the slowest graph that passed."""
    records = [r["data"] for r in find(str(folder)).events() if r["event"] == "candidate"]
    graphs = (r for r in records if r["purpose"].startswith("graph ") and r["outcome"] == "ok")
    return max((r["cpu_seconds"] for r in graphs), default=0.0)


def slow_graph(folder: Path) -> str:
    """Return the message about a graph that compiles slowly; empty if there is none."""
    records = find(str(folder)).events()
    failures = [r["data"] for r in records if r["event"] == "failure"]
    return next((f["message"] for f in failures if f["failure"] == "slow"), "")


def graph_raised(folder: Path) -> bool:
    """Return whether a graph of the script raised in eager."""
    return any(r["event"] == "graph.raised" for r in find(str(folder)).events())


def order_excused(folder: Path) -> bool:
    """Return whether a graph counted as passed that differs in the order of equal elements."""
    return any(
        r["event"] == "fallback" and r["data"]["reason"] == ORDER
        for r in find(str(folder)).events()
    )


def candidates_run(folder: Path) -> int:
    """Return the number of runs of candidates, in all steps of the command together."""
    found = [r["data"] for r in find(str(folder)).events() if r["event"] == "candidate"]
    return sum(not candidate["cached"] for candidate in found)


def nothing_captured(folder: Path) -> bool:
    """Return whether no process of the script gave a graph to a backend, though each could."""
    signs = {"graph.recorded", "graph.raised", "fallback", "failure", "decision", "pass"}
    return not any(r["event"] in signs for r in find(str(folder)).events())


def why_no_graph(folder: Path) -> str:
    """Say why no graph was captured, as far as the events of the run show it."""
    records = list(find(str(folder)).events())
    called = {r["pid"] for r in records if r["event"] == CompiledCalled.kind}
    if not called:
        return NO_GRAPH
    purposes = [
        str(r["data"]["purpose"])
        for r in records
        if r["event"] == WorkerStart.kind and r["pid"] in called
    ]
    children = sorted({p.removeprefix(CHILD) for p in purposes if p.startswith(CHILD)})
    return NOTHING_TO_COMPILE.format(f" by {' and '.join(children)}" if children else "")


def fallbacks(folder: Path, searched: int | None = None) -> list[str]:
    """Return what had to be done in another way, one line for each reason.

    The graph that was `searched` by itself in the end is not said to be a part of the script only,
    nor to have passed.
    """
    other = {text.format(searched) for text in (NOT_BY_ITSELF, PASSED)}
    whats: dict[str, dict[str, None]] = {}
    for event in find(str(folder)).events():
        if event["event"] == "fallback":
            what, reason = event["data"]["what"], event["data"]["reason"].splitlines()[0][:160]
            if what not in other:
                whats.setdefault(reason, {})[what] = None
    return [f"{'; '.join(what)}: {reason}" for reason, what in whats.items()]


def notes_of_run(folder: Path, report: Report) -> list[str]:
    """Return notes on what had to be done in another way, and on wrong inputs if the script fails.

    Every kernel may read an input wrongly whose dtype is not the one that was captured.
    """
    wrong: dict[str, None] = {}
    for event in find(str(folder)).events() if report.failure is not None else ():
        if event["event"] == "graph.recorded" and (text := event["data"].get("differing")):
            wrong[WRONG_INPUT.format(event["data"]["ordinal"], text)] = None
    return [*wrong, *fallbacks(folder, report.graph)]


def some_not_compared(folder: Path) -> bool:
    """Return whether Dynamo did not capture a graph again in any of its calls."""
    compared, lost = set(), set()
    for event in find(str(folder)).events():
        data = event["data"]
        if event["event"] == "candidate" and data["outcome"] == "ok":
            compared |= set(GRAPH.findall(data["purpose"]))
        elif event["event"] == "fallback" and data["reason"].startswith(NOT_CAPTURED):
            lost |= set(GRAPH.findall(data["what"]))
    return not lost <= compared


def none_judged(folder: Path) -> bool:
    """Return whether no graph of the script passed by itself."""
    found = [r["data"] for r in find(str(folder)).events() if r["event"] == "candidate"]
    return not any(c["outcome"] == "ok" and GRAPH.match(c["purpose"]) for c in found)


def passes_called(folder: Path) -> tuple[str, ...]:
    """Return the gated passes that the script called itself, in its run in eager.

    No backend runs there, and a gated pass is left out.
    """
    found = [r for r in find(str(folder)).events() if r["event"] == "pass"]
    units = (r["unit"] for r in found if not r["data"]["allowed"])
    return tuple(dict.fromkeys(unit for unit in units if unit.startswith(f"{PROGRAM_PASSES}.")))


def unended(endless: str, place: str) -> str:
    """Say that something did not end, and the line of the program where it was, if known."""
    return f"{endless} did not end. It was at {place}" if place else f"{endless} did not end"


def recording_notes(status: int, folder: Path, endless: str) -> list[str]:
    """Say how the session that recorded the graphs ended, given its exit status, unless it is 0.

    If it was `STUCK`, `endless` says what did not end.
    """
    if status == 0:
        return []
    if status == STUCK:
        return [endless, "no graph after that was judged alone"]
    word = "raised" if status == SCRIPT_FAILED else f"ended with status {status}"
    return [f"the script {word} while its graphs were recorded: see {folder / 'search.log'}"]
